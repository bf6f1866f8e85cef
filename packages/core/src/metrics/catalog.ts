/**
 * Every metric of the gateway (CHAT-15). Names are a contract: dashboards and alarms are made from
 * them, docs/metrics.md is their table. Tenants are no label: that is what the usage API is for.
 */
export interface MetricSpec {
  readonly type: "counter" | "histogram";
  readonly help: string;
  readonly labels: readonly string[];
}

export const metricCatalog = {
  toolyard_http_requests_total: {
    type: "counter",
    help: "Requests answered, by route pattern and status.",
    labels: ["method", "route", "status"],
  },
  toolyard_http_request_duration_seconds: {
    type: "histogram",
    help: "Time from the request to the end of its answer.",
    labels: ["route"],
  },
  toolyard_chats_total: {
    type: "counter",
    help: "Chats that ended; `tools` tells whether the gateway ran any for them.",
    labels: ["state", "code", "tools"],
  },
  toolyard_chat_duration_seconds: { type: "histogram", help: "Time from admission to settlement.", labels: ["tools"] },
  toolyard_tool_calls_total: {
    type: "counter",
    help: "Tool calls that ended, by tool, end state and error code (empty where there is none).",
    labels: ["tool", "state", "code"],
  },
  toolyard_tool_call_duration_seconds: {
    type: "histogram",
    help: "Time of a tool call from its start to its end.",
    labels: ["tool"],
  },
  toolyard_tool_calls_resolved_total: {
    type: "counter",
    help: "Calls counted as `unknown` whose fate became known later.",
    labels: ["tool", "state"],
  },
  toolyard_tokens_total: { type: "counter", help: "Tokens that model back ends reported.", labels: ["kind"] },
} as const satisfies Record<string, MetricSpec>;

export type MetricName = keyof typeof metricCatalog;
export type Labels = Readonly<Record<string, string>>;
