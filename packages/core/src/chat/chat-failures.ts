/** Errors of a chat that its tools make: one that ends it, and what every other must tell once something was written. */
import { GatewayError } from "../errors/gateway-error.ts";
import { toErrorDetails, type ToolOutcome } from "../tools/outcome.ts";

/** @throws GatewayError `tool_not_found`, `tool_failed` */
export function refuseFailure(tool: string, outcome: ToolOutcome): void {
  if (outcome.kind !== "failed" && outcome.kind !== "rejected") return;
  const { param, extra } = toErrorDetails(outcome.details);
  const isThere = outcome.code !== "tool_not_found";
  throw new GatewayError(
    isThere ? "tool_failed" : "tool_not_found",
    isThere ? `Tool execution failed: ${outcome.message}` : outcome.message,
    {
      toolName: tool,
      ...(param === undefined ? {} : { param }),
      extra: { ...extra, tool_error: outcome.code },
    },
  );
}

/** SDKs repeat failed requests by themselves; after a write they must not. */
export function withWriteStarted(error: GatewayError): GatewayError {
  return new GatewayError(error.code, error.message, {
    ...error.details,
    extra: { ...error.details.extra, write_started: true },
  });
}
