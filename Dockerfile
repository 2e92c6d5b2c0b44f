# Only the operator is an image; the plugin and the tools run where people are.
FROM --platform=$BUILDPLATFORM golang:1.26 AS build
ARG TARGETOS TARGETARCH VERSION=dev
WORKDIR /src
COPY go.mod go.sum ./
RUN go mod download
COPY . .
RUN CGO_ENABLED=0 GOOS=$TARGETOS GOARCH=$TARGETARCH \
    go build -trimpath -ldflags="-s -w -X main.version=$VERSION" -o /ctrlrun-operator ./cmd/ctrlrun-operator

FROM gcr.io/distroless/static:nonroot
COPY --from=build /ctrlrun-operator /ctrlrun-operator
USER 65532:65532
ENTRYPOINT ["/ctrlrun-operator"]
