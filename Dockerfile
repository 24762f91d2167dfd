# An image of the program alone, to load servers from. What observes or tunes a host belongs on the host (README, Install).
#
#     docker build -t webdyno .
#     docker run --rm --network host -v "$PWD:/work" webdyno run -c 50 -d 30s http://127.0.0.1:8080/
#
# Alpine's Rust links musl in: it resolves names without shared libraries, which glibc would load.
FROM rust:1.95-alpine AS build
WORKDIR /src
COPY . .
RUN cargo build --release --locked -p webdyno \
    && strip -o /webdyno target/release/webdyno \
    && /webdyno --version

FROM scratch
COPY --from=build /etc/ssl/certs/ca-certificates.crt /etc/ssl/certs/
COPY --from=build /webdyno /usr/bin/webdyno
# Run directories go there.
WORKDIR /work
ENTRYPOINT ["/usr/bin/webdyno"]
CMD ["--help"]
