"""report.html: a run on one page that opens in any browser, offline. `page.write_page` makes it."""
