# The image of nm-reconciler: two static programs on nothing. The second one is the plugin, which runs rolls in the cluster. docs/how-to/build-the-image.md says how to build it, also without Docker.
ARG RUST_VERSION=1.95

# Alpine's Rust builds for musl, and so without shared libraries, on every architecture that it runs on.
FROM docker.io/library/rust:${RUST_VERSION}-alpine AS build
WORKDIR /source
COPY . .
RUN --mount=type=cache,target=/usr/local/cargo/registry --mount=type=cache,target=/source/target \
    cargo build --locked --release -p nm-reconciler -p kubectl-nm && cp target/release/nm-reconciler target/release/kubectl-nm /

FROM scratch
ARG VERSION=0.1.0
ARG REVISION=unknown
LABEL org.opencontainers.image.title="nm-reconciler" \
      org.opencontainers.image.description="Cordons nodes, evicts their pods and returns them to service" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.revision="${REVISION}"
COPY LICENSE /LICENSE
COPY --from=build /nm-reconciler /kubectl-nm /
USER 65532:65532
EXPOSE 8080 9443
ENTRYPOINT ["/nm-reconciler"]
