/**
 * Imports tools: an OpenAPI document, a curl command or a list of definitions becomes plugins (BLIND-1). A
 * dry run says what would be done; importing the same source again changes nothing.
 */
import { sealCredential } from "../blind/credential-resolver.ts";
import type { PluginRecord } from "../blind/plugin.ts";
import type { CallContext } from "../context.ts";
import type { CoreDeps } from "../core-deps.ts";
import { GatewayError } from "../errors/gateway-error.ts";
import type { JsonValue } from "../json.ts";
import type { Egress } from "../ports/egress.ts";
import type { PluginChanges } from "../ports/plugins.ts";
import { readVcpSource } from "../vcp/plugins/folders.ts";
import { importVcpFolders } from "../vcp/plugins/import.ts";
import type { VcpSource } from "../vcp/plugins/source.ts";
import type { ReadSource } from "./candidate.ts";
import { readCurl } from "./curl/read-curl.ts";
import { readDefinitions } from "./definitions.ts";
import { fetchDocument } from "./fetch-document.ts";
import { ApiDocument } from "./openapi/document.ts";
import { loadExternalDocuments } from "./openapi/external.ts";
import { readOpenApi } from "./openapi/read-openapi.ts";
import { requireConfirmedOrigins } from "./origins.ts";
import { Pace } from "../pace.ts";
import { planImport, type ImportPlan } from "./plan.ts";
import { readDocumentText } from "./read-text.ts";
import type { ImportRequest } from "./request.ts";
import { toResult, type ImportResult } from "./result.ts";

export type ImportDeps = Pick<CoreDeps, "repos" | "egress" | "sealer" | "adapters" | "log" | "tellNow" | "blobs">;

/**
 * @throws GatewayError `invalid_request`, `invalid_definition`, `egress_denied`, `tool_unreachable` for a
 * source that cannot be read; `confirmation_required` where credentials would follow a document to
 * another origin; `conflict` where somebody else changed the same plugins meanwhile
 */
export async function importPlugins(
  deps: ImportDeps,
  context: CallContext,
  request: ImportRequest,
): Promise<ImportResult> {
  if (request.vcp !== undefined) return importVcp(deps, context, request.vcp, request.dry_run);
  const pace = new Pace();
  const source = await readSource(deps, request, pace);
  if (source.document.origin !== null) requireReachable(deps.egress, source.document.origin);
  const { plugins } = context.config;
  const plan = await planImport(source, {
    plugins,
    isReserved: (name) => isNative(deps, context, name),
    egress: deps.egress,
    pace,
    isExact: request.definitions !== undefined,
    keepsAuth: request.auth.config !== null,
    removeMissing: request.remove_missing,
  });
  const confirmations = requireConfirmedOrigins(plan, source.document.id, { plugins, request });
  const secrets = "secrets" in source ? source.secrets : new Map<string, string | undefined>();
  const isStoring = request.store_credentials && !request.dry_run && plan.planned.length > 0;
  const ids = request.dry_run ? new Map<string, number>() : await apply(deps, context, { plan, request, secrets });
  return toResult({
    source,
    plan,
    request,
    context,
    ids,
    confirmations,
    found: [...secrets.keys()],
    storedNow: isStoring ? [...secrets].flatMap(([name, value]) => (value === undefined ? [] : [name])) : [],
  });
}

async function importVcp(
  deps: ImportDeps,
  context: CallContext,
  source: VcpSource,
  dryRun: boolean,
): Promise<ImportResult> {
  const read = await readVcpSource(source);
  const [broken] = read.unusable;
  // One plugin that cannot be read is a wrong request; among others it is one line of the answer.
  if (broken !== undefined && read.folders.length === 0) {
    throw new GatewayError("invalid_definition", broken.reason, { param: "vcp" });
  }
  return importVcpFolders(deps, context, read, { dryRun });
}

type Source = ReadSource | (ReadSource & { readonly secrets: ReadonlyMap<string, string | undefined> });

async function readSource(deps: ImportDeps, request: ImportRequest, pace: Pace): Promise<Source> {
  const { curl, definitions, document_id: documentId, prefix = "" } = request;
  if (definitions !== undefined) return readDefinitions(definitions, documentId);
  if (curl !== undefined) return readCurl(curl, { documentId, prefix, name: request.name });
  const document = await readDocument(deps, request);
  return readOpenApi(document, {
    documentId,
    prefix,
    include: request.include,
    exclude: request.exclude,
    baseUrl: request.base_url,
    variables: request.server_variables,
    auth: request.auth,
    allowedOrigins: originsOf(request.allowed_origins),
    pace,
  });
}

function originsOf(addresses: readonly string[]): ReadonlySet<string> {
  return new Set(
    addresses.map((address) => {
      const url = URL.parse(address);
      if (url !== null && /^https?:$/.test(url.protocol)) return url.origin;
      throw new GatewayError(
        "invalid_request",
        "'allowed_origins' must hold origins like 'https://uploads.example.com'.",
        {
          param: "allowed_origins",
        },
      );
    }),
  );
}

export type DocumentRequest = Pick<ImportRequest, "openapi" | "url" | "allow_external_refs">;

/** @throws GatewayError `invalid_request`, `egress_denied`, `tool_unreachable` for a document that cannot be had */
export async function readDocument(deps: Pick<ImportDeps, "egress">, request: DocumentRequest): Promise<ApiDocument> {
  const { openapi, url: given } = request;
  const address = given === undefined ? undefined : requireAddress(given);
  const fetched =
    openapi === undefined && address !== undefined
      ? await fetchDocument(address, { egress: deps.egress, param: "url" })
      : undefined;
  const root =
    fetched?.document ?? (typeof openapi === "string" ? await readDocumentText(openapi, "openapi") : (openapi ?? null));
  const url = fetched?.url ?? address;
  const others = request.allow_external_refs ? await loadOthers(deps.egress, root, url) : undefined;
  const param = fetched === undefined ? "openapi" : "url";
  return new ApiDocument(root, { url, param, ...(others === undefined ? {} : { others }) });
}

function requireAddress(text: string): string {
  const url = URL.parse(text);
  if (url !== null && /^https?:$/.test(url.protocol) && url.username === "" && url.password === "") return url.href;
  throw new GatewayError("invalid_request", "'url' must be an http or https address without user name and password.", {
    param: "url",
  });
}

/** What cannot be loaded leaves a gap in the schema that needs it, not a failed import. */
async function loadOthers(
  egress: Egress,
  root: JsonValue,
  url: string | undefined,
): Promise<ReadonlyMap<string, JsonValue>> {
  return loadExternalDocuments(root, {
    url,
    load: async (address) => {
      try {
        return await fetchDocument(address, { egress, param: "allow_external_refs" });
      } catch (error) {
        if (error instanceof GatewayError) return undefined;
        throw error;
      }
    },
  });
}

function requireReachable(egress: Egress, origin: string): void {
  try {
    egress.checkUrl(`${origin}/`);
  } catch (error) {
    if (!(error instanceof GatewayError)) throw error;
    throw new GatewayError(error.code, error.message, { ...error.details, param: "base_url" });
  }
}

function isNative({ adapters }: ImportDeps, context: CallContext, name: string): boolean {
  return adapters.native?.resolve({ scheme: "native", service: name, tool: "", options: {} }, context) !== undefined;
}

interface Application {
  readonly plan: ImportPlan;
  readonly request: ImportRequest;
  readonly secrets: ReadonlyMap<string, string | undefined>;
}

/** @returns ids of the plugins that are new, by name */
async function apply(
  deps: ImportDeps,
  context: CallContext,
  { plan, request, secrets }: Application,
): Promise<ReadonlyMap<string, number>> {
  if (request.store_credentials && plan.planned.length > 0) await storeSecrets(deps, context, secrets);
  const changes = toChanges(plan);
  const isNothing = changes.create.length + changes.update.length + changes.delete.length === 0;
  if (isNothing) return new Map();
  const ids = await deps.repos.plugins.upsertMany(context.tenant, changes);
  const lost = [...changes.create, ...changes.update.map(({ plugin }) => plugin)].find(({ name }) => !ids.has(name));
  if (lost !== undefined) {
    throw new GatewayError("conflict", `Plugin '${lost.name}' was changed by somebody else just now; import again.`, {
      param: "name",
    });
  }
  return ids;
}

function toChanges({ planned, missing, removesMissing }: ImportPlan): PluginChanges {
  return {
    create: planned.flatMap(({ plugin, existing }) => (existing === undefined ? [plugin] : [])),
    update: planned.flatMap(({ plugin, existing }) =>
      existing === undefined || existing.hash === plugin.hash
        ? []
        : [{ pluginId: existing.pluginId, expectedHash: existing.hash, plugin }],
    ),
    delete: removesMissing ? missing.map(({ pluginId }: PluginRecord) => pluginId) : [],
  };
}

async function storeSecrets(deps: ImportDeps, context: CallContext, secrets: Application["secrets"]): Promise<void> {
  const { tenant, config } = context;
  for (const [name, value] of secrets) {
    if (value === undefined) continue;
    await sealCredential(
      { sealer: deps.sealer, credentials: deps.repos.credentials },
      { tenant, wrappedKey: config.wrappedKey, name, value, userId: null },
    );
  }
}
