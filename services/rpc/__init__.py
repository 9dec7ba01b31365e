"""What every gRPC process shares: lifecycle, errors, channels, names, settings, telemetry."""
