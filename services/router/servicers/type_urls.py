"""Envoy's type URLs of the kinds of resources."""

from services.router.domain.snapshot import Kind

TYPE_URLS = {
    Kind.SECRET: "type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.Secret",
    Kind.CLUSTER: "type.googleapis.com/envoy.config.cluster.v3.Cluster",
    Kind.ASSIGNMENT: "type.googleapis.com/envoy.config.endpoint.v3.ClusterLoadAssignment",
    Kind.FILTER: "type.googleapis.com/envoy.config.core.v3.TypedExtensionConfig",
    Kind.LISTENER: "type.googleapis.com/envoy.config.listener.v3.Listener",
    Kind.ROUTES: "type.googleapis.com/envoy.config.route.v3.RouteConfiguration",
}
KINDS = {url: kind for kind, url in TYPE_URLS.items()}
