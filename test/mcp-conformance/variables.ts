/** What the conformance suite and its runner tell the client, as environment variables. */
import { parseJson, type JsonValue } from "@toolyard/core/json";

export interface ConformanceVariables {
  readonly scenario: string;
  /** Of MCP, that the scenario is about. */
  readonly revision: string;
  /** What the scenario says beside; its own affair. */
  readonly context: JsonValue | undefined;
  readonly gatewayUrl: string;
  readonly adminKey: string;
}

export function conformanceVariables(): ConformanceVariables {
  const read = (name: string): string => process.env[name] ?? "";
  return {
    scenario: read("MCP_CONFORMANCE_SCENARIO"),
    revision: read("MCP_CONFORMANCE_PROTOCOL_VERSION"),
    context: parseJson(read("MCP_CONFORMANCE_CONTEXT")),
    gatewayUrl: read("TOOLYARD_URL"),
    adminKey: read("TOOLYARD_ADMIN_KEY"),
  };
}
