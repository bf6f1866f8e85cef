/**
 * What a call would send, without sending it: the exact request with the names of credentials where
 * their values go, and whose credential fills which place. No value is opened for it.
 */
import type { JsonObject } from "../json.ts";
import { maskSecrets } from "./auth-mapping.ts";
import { findCredential, type CredentialContext } from "./credential-resolver.ts";
import { callHeaders } from "./execute.ts";
import { planOf } from "./plan-cache.ts";
import type { PluginRecord } from "./plugin.ts";
import { buildRequest } from "./request.ts";
import type { ExplainedCredential, ExplainedRequest } from "../tools/explained-request.ts";

/** Characters of a body that are shown. */
const longestBody = 65_536;

/** Where the call's own id will stand. */
const callIdPlace = "<id of the call>";

/**
 * @param args validated, with defaults applied
 * @throws GatewayError `invalid_arguments`, `invalid_definition` as the call itself would
 */
export async function explainBlind(
  record: PluginRecord,
  args: JsonObject,
  context: CredentialContext & { readonly traceId: string },
): Promise<ExplainedRequest> {
  const { plan, execution, authConfig } = planOf(record);
  const placed = await maskSecrets(authConfig);
  const built = buildRequest(plan, args, placed);
  const bytes = built.body === undefined ? undefined : Buffer.from(built.body);
  return {
    method: built.method,
    url: built.url,
    headers: [
      ["host", new URL(built.url).host],
      ["connection", "keep-alive"],
      ...built.headers,
      ...callHeaders(execution.idempotency_header, callIdPlace, context.traceId),
      ...(bytes === undefined || bytes.byteLength === 0 ? [] : [["content-length", String(bytes.byteLength)] as const]),
    ],
    body: bytes === undefined ? null : bytes.toString("utf8").slice(0, longestBody),
    body_bytes: bytes?.byteLength ?? 0,
    credentials: placed.flatMap(({ location, name: target, sources }) =>
      sources.map((name) => toExplained(name, { location, target }, context)),
    ),
  };
}

function toExplained(
  name: string,
  slot: Pick<ExplainedCredential, "location" | "target">,
  context: CredentialContext,
): ExplainedCredential {
  const origin = findCredential(context, name);
  if (origin === undefined) return { name, level: "missing", ...slot };
  const { level, userId, version } = origin;
  return {
    name,
    level,
    ...(userId === undefined ? {} : { user_id: userId }),
    ...(version === undefined ? {} : { version }),
    ...slot,
  };
}
