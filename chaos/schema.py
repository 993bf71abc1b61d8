"""The JSON Schema of scenarios, for editors. The committed file is compared with it by a test."""

from __future__ import annotations

import json

from chaos.scenario import Scenario

SCHEMA_FILE = "chaos/schemas/scenario.schema.json"


def scenario_schema_text() -> str:
    """The schema as the committed file has it."""
    schema = Scenario.model_json_schema()
    schema["$schema"] = "https://json-schema.org/draft/2020-12/schema"
    return json.dumps(schema, indent=2, ensure_ascii=False) + "\n"
