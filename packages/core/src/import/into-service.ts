/**
 * Operations of an OpenAPI document become tools of an `api://` service. The service has the address and
 * the credentials, so nothing of the document decides where they go: an operation at another address is
 * left out. Importing the same document again changes what it changed, and nothing else.
 */
import type { CallContext } from "../context.ts";
import type { CoreDeps } from "../core-deps.ts";
import { GatewayError } from "../errors/gateway-error.ts";
import { schemaProblem } from "../errors/schema-problems.ts";
import { isJsonObject, type JsonObject } from "../json.ts";
import { authConfigOf } from "../services/http-auth.ts";
import { operationSchema } from "../services/http-operations.ts";
import { requireService, updateService } from "../services/register.ts";
import type { ToolService } from "../services/service.ts";
import { ownMember } from "../tools/json-schema/document.ts";
import { formatToolUri } from "../tools/uri.ts";
import type { Candidate, ReadSource } from "./candidate.ts";
import { changedFields } from "./compare.ts";
import { readDocument, type DocumentRequest } from "./import.ts";
import { assignNames } from "./names.ts";
import { readOpenApi } from "./openapi/read-openapi.ts";
import { Pace } from "../pace.ts";
import { withoutEndSlashes } from "./text.ts";

export interface ServiceImportRequest extends DocumentRequest {
  readonly id: string;
  readonly include?: readonly string[] | undefined;
  readonly exclude?: readonly string[] | undefined;
  readonly document_id?: string | undefined;
  readonly remove_missing: boolean;
  readonly dry_run: boolean;
}

export interface ServiceImportedTool {
  /** `GET /users/{id}` */
  readonly operation: string;
  readonly action: "added" | "changed" | "unchanged" | "removed" | "missing" | "skipped";
  readonly tool: string | null;
  readonly uri: string | null;
  readonly changed_fields: readonly string[];
  readonly warnings: readonly string[];
  readonly reason: string | null;
}

export interface ServiceImport {
  readonly service: ToolService;
  readonly document: { readonly id: string; readonly title: string | null; readonly version: string | null };
  readonly tools: readonly ServiceImportedTool[];
  readonly warnings: readonly string[];
}

type ImportDeps = Pick<CoreDeps, "adapters" | "repos" | "sealer" | "egress" | "tellNow" | "log">;

/**
 * @throws GatewayError `not_found`; `invalid_request` for a service of another scheme or a document that
 * cannot be read; what changing the service throws
 */
export async function importIntoService(
  deps: ImportDeps,
  context: CallContext,
  request: ServiceImportRequest,
): Promise<ServiceImport> {
  const before = await requireService(deps, context.tenant, request.id);
  const { base_url: baseUrl } = before.config;
  if (before.scheme !== "api" || typeof baseUrl !== "string") {
    throw new GatewayError("invalid_request", "Only services of the scheme 'api' import OpenAPI documents.", {
      param: "id",
    });
  }
  const source = await readOpenApi(await readDocument(deps, request), {
    documentId: request.document_id,
    prefix: "",
    include: request.include,
    exclude: request.exclude,
    baseUrl: baseOf(baseUrl),
    variables: {},
    auth: { config: authConfigOf(before.config) ?? null },
    allowedOrigins: new Set(),
    pace: new Pace(),
  });
  const planned = plan(source, { service: before, base: baseOf(baseUrl), request });
  const hasChanges = planned.tools.some(({ action }) => ["added", "changed", "removed"].includes(action));
  const service =
    request.dry_run || !hasChanges
      ? before
      : await updateService(deps, context, {
          id: before.id,
          patch: { config: { ...before.config, tools: planned.config }, replacesConfig: true },
          expectedVersion: before.version,
        });
  const { id, title, version } = source.document;
  return { service, document: { id, title, version }, tools: planned.tools, warnings: source.warnings };
}

/** Without query and without a slash at its end. */
function baseOf(baseUrl: string): string {
  return withoutEndSlashes(baseUrl.replace(/\?.*$/s, ""));
}

interface Plan {
  /** `tools` of the service as they are to be. */
  readonly config: JsonObject;
  readonly tools: readonly ServiceImportedTool[];
}

interface Planning {
  readonly service: ToolService;
  readonly base: string;
  readonly request: ServiceImportRequest;
}

function plan(source: ReadSource, { service, base, request }: Planning): Plan {
  const { document, candidates, skipped, present } = source;
  const existing = isJsonObject(service.config["tools"]) ? service.config["tools"] : {};
  const known = knownTools(existing, document.id);
  const taken = new Set(Object.keys(existing));
  const names = assignNames(candidates, { known, isTaken: (name) => taken.has(name) });
  const config = new Map(Object.entries(existing));
  const tools: ServiceImportedTool[] = [];
  const view = (id: string | null): Pick<ServiceImportedTool, "tool" | "uri"> => ({
    tool: id,
    uri: id === null ? null : formatToolUri(service.scheme, service.serviceId, id),
  });
  for (const candidate of candidates) {
    const id = names.get(candidate.key) ?? candidate.wish;
    const operation = toOperation(candidate, { base, document: document.id });
    const { label, warnings } = candidate;
    if (typeof operation === "string") {
      tools.push({
        operation: label,
        action: "skipped",
        ...view(null),
        changed_fields: [],
        warnings,
        reason: operation,
      });
      continue;
    }
    const before = ownMember(existing, id);
    const fields = isJsonObject(before) ? changedFields(imported(before), operation) : [];
    const action = before === undefined ? "added" : fields.length > 0 ? "changed" : "unchanged";
    // What was decided here about a tool stays.
    if (action !== "unchanged") config.set(id, { ...decidedHere(before), ...operation });
    tools.push({ operation: label, action, ...view(id), changed_fields: fields, warnings, reason: null });
  }
  for (const { label, reason } of skipped) {
    tools.push({ operation: label, action: "skipped", ...view(null), changed_fields: [], warnings: [], reason });
  }
  for (const [key, id] of known) {
    if (present.has(key)) continue;
    if (request.remove_missing) config.delete(id);
    const action = request.remove_missing ? "removed" : "missing";
    tools.push({ operation: key, action, ...view(id), changed_fields: [], warnings: [], reason: null });
  }
  return { config: Object.fromEntries(config), tools };
}

/** Ids of tools that an earlier import of this document made, by its operations. */
function knownTools(tools: JsonObject, document: string): ReadonlyMap<string, string> {
  return new Map(
    Object.entries(tools).flatMap(([id, operation]) => {
      const source = isJsonObject(operation) ? operation["source"] : undefined;
      const isOfIt = isJsonObject(source) && source["document"] === document;
      return isOfIt && typeof source["operation"] === "string" ? [[source["operation"], id] as const] : [];
    }),
  );
}

/** Fields that no document says anything about. */
const localFields = ["sensitive", "roles", "timeout_ms", "max_attempts", "effect", "idempotency_header"] as const;

function decidedHere(before: unknown): JsonObject {
  if (!isJsonObject(before)) return {};
  return Object.fromEntries(
    localFields.flatMap((field) => (before[field] === undefined ? [] : [[field, before[field]]])),
  );
}

function imported(before: JsonObject): JsonObject {
  return Object.fromEntries(Object.entries(before).filter(([field]) => !localFields.some((local) => local === field)));
}

/** @returns the reason where it cannot be one of the service's */
function toOperation(
  { key, definition }: Candidate,
  { base, document }: { readonly base: string; readonly document: string },
): JsonObject | string {
  const { title, description, parameters, execution } = definition;
  const { base_url: address, ...others } = isJsonObject(execution) ? execution : {};
  if (typeof address !== "string" || !isJsonObject(parameters) || !address.startsWith(`${base}/`))
    return `it is not below the service's base_url ${base}`;
  const operation = {
    ...others,
    content_type: others["content_type"] ?? "application/json",
    ...(title === undefined ? {} : { title }),
    description: description ?? key,
    endpoint: address.slice(base.length),
    parameters,
    source: { document, operation: key },
  } satisfies JsonObject;
  const { error } = operationSchema.safeParse(operation);
  if (error === undefined) return operation;
  const { path, says } = schemaProblem(error);
  return `its '${path.join(".")}' ${says}`;
}
