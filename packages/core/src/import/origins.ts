/**
 * A credential belongs to the origin that somebody configured it for. A document that now names another
 * server, or one that was never looked at while credentials were chosen for it, needs a confirmation:
 * the new origin in `base_url` or `allowed_origins`.
 */
import type { PluginRecord } from "../blind/plugin.ts";
import { GatewayError } from "../errors/gateway-error.ts";
import { sourceOf, type ImportPlan } from "./plan.ts";
import type { ImportRequest } from "./request.ts";

export interface Confirmation {
  readonly origin: string;
  /** Where the document's tools went before; null for a first import. */
  readonly previous: string | null;
  readonly message: string;
}

export interface OriginContext {
  readonly plugins: readonly PluginRecord[];
  readonly request: ImportRequest;
}

/**
 * @returns what a real import needs a confirmation for; in a dry run only
 * @throws GatewayError `confirmation_required` naming the origins
 */
export function requireConfirmedOrigins(
  plan: ImportPlan,
  documentId: string,
  context: OriginContext,
): readonly Confirmation[] {
  const { request } = context;
  if (request.definitions !== undefined || request.curl !== undefined) return [];
  const confirmations = findUnconfirmed(plan, documentId, context);
  const [first] = confirmations;
  if (first === undefined || request.dry_run) return confirmations;
  throw new GatewayError("confirmation_required", first.message, {
    param: "base_url",
    extra: { origin: first.origin, previous_origin: first.previous },
  });
}

function findUnconfirmed(
  { planned }: ImportPlan,
  documentId: string,
  { plugins, request }: OriginContext,
): readonly Confirmation[] {
  const before = new Set(plugins.filter((record) => sourceOf(record)?.document === documentId).flatMap(originOf));
  const [previous = null] = before;
  const named = new Set(
    [...(request.base_url === undefined ? [] : [request.base_url]), ...request.allowed_origins].flatMap(toOrigin),
  );
  const choosesCredentials = request.auth.credentials !== undefined || (request.auth.config ?? null) !== null;
  if (previous === null && !choosesCredentials) return [];
  // Whoever gave the document's own address has named that origin, too; but only while nothing was set up.
  const known =
    previous === null
      ? new Set([...named, ...(request.url === undefined ? [] : toOrigin(request.url))])
      : new Set([...named, ...before]);
  const wanted = new Set(planned.flatMap(({ plugin }) => originOf(plugin)));
  return [...wanted]
    .filter((origin) => !known.has(origin))
    .map((origin) => ({ origin, previous, message: messageFor(origin, previous) }));
}

function messageFor(origin: string, previous: string | null): string {
  const what =
    previous === null
      ? `The document sends calls, with the credentials that 'auth' names, to ${origin}`
      : `The document sends calls to ${origin}; before it was ${previous}`;
  return `${what}. Confirm that by naming ${origin} in 'allowed_origins', or say where the API is with 'base_url'.`;
}

function originOf({ executionConfig }: Pick<PluginRecord, "executionConfig">): readonly string[] {
  return "execution" in executionConfig ? toOrigin(executionConfig.execution.base_url) : [];
}

function toOrigin(address: string): readonly string[] {
  const url = URL.parse(address);
  return url === null ? [] : [url.origin];
}
