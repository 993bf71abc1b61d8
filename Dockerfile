# One image for every role. `docker build --build-arg PYTHON_IMAGE=… -t gradstorm:local .`, or scripts/docker-images.
#
#     docker run --rm -e GRADSTORM_TOKEN gradstorm:local worker-1 --run-id ID --folder /run-folder --listen HOST:PORT …
#
# It needs no BuildKit. What numbers depend on (OPENBLAS_*, OMP_NUM_THREADS, NPY_*) is not set here: it comes from the
# host's environment through `docker run -e` or compose, so that a container computes the same bits as its host.
ARG PYTHON_IMAGE=python:3.11-slim

# What Gradstorm needs, pinned and hashed, apart from its own code: a change of the code does not install it again.
FROM ${PYTHON_IMAGE} AS needs
ENV PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_CACHE_DIR=1
COPY requirements-runtime.lock /tmp/
RUN python3 -m venv /opt/needs \
    && /opt/needs/bin/pip install --require-hashes -r /tmp/requirements-runtime.lock \
    && /opt/needs/bin/pip uninstall --yes setuptools pip \
    && echo /opt/gradstorm >"$(/opt/needs/bin/python3 -c 'import site; print(site.getsitepackages()[0])')/gradstorm.pth"

FROM needs AS code
WORKDIR /src
COPY requirements-build.lock ./
RUN python3 -m venv /opt/build && /opt/build/bin/pip install --require-hashes -r requirements-build.lock
COPY pyproject.toml LICENSE ./
COPY proto proto
COPY training training
COPY services services
COPY chaos chaos
COPY testbed testbed
RUN /opt/build/bin/python3 -m hatchling build -t wheel -d /wheel \
    && /opt/build/bin/pip --python /opt/needs/bin/python3 install --no-index --no-deps --target /opt/gradstorm /wheel/*.whl

FROM ${PYTHON_IMAGE}
LABEL org.opencontainers.image.title=Gradstorm
ENV PATH=/opt/gradstorm/bin:/opt/needs/bin:$PATH PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1 HOME=/tmp
# A number, so that whoever runs the image can see that it is not root. Any other works as well (`user:` in compose).
RUN mkdir /run-folder && chown 10001:10001 /run-folder
WORKDIR /run-folder
# A role ends in order on SIGTERM: it hands over its last records and closes its links.
STOPSIGNAL SIGTERM
HEALTHCHECK --interval=5s --timeout=3s --start-period=30s --retries=3 CMD ["python3", "-m", "testbed.containers.health_probe"]
ENTRYPOINT ["python3", "-m", "services.shell"]
COPY --from=needs /opt/needs /opt/needs
COPY --from=code /opt/gradstorm /opt/gradstorm
USER 10001:10001
