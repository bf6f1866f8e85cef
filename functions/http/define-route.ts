/**
 * The one way to declare a route. Authentication, admission, validation, the OpenAPI document and the
 * suites that run over every route follow from the declaration (style "Add one thing in one place").
 */
import { admit, identify, requireScope } from "@toolyard/core/calls/admit";
import { operatorCaller, type Authenticator, type Presented } from "@toolyard/core/callers/authenticate";
import type { Caller, Scope } from "@toolyard/core/callers/caller";
import type { CallContext } from "@toolyard/core/context";
import type { CoreDeps } from "@toolyard/core/core-deps";
import { GatewayError } from "@toolyard/core/errors/gateway-error";
import type { AdmitResult } from "@toolyard/core/ports/calls";
import { Redactor } from "@toolyard/core/secrets/redactor";
import type { TenantConfig } from "@toolyard/core/tenant-config";
import type * as z from "zod";
import { headerOf, type AppContext, type AppDeps } from "./app-env.ts";
import { parseJsonBody, readBody, streamBody } from "./body.ts";
import { toInvalidRequest, type Place } from "./errors.ts";
import { setRateLimitHeaders } from "./rate-limit-headers.ts";

export type Method = "get" | "post" | "put" | "patch" | "delete";

/**
 * `request`: proven and counted by `admit` before the handler runs. `own`: the handler calls `admit`
 * itself, with its call row. `none`: open to everybody.
 */
export type Admission = "request" | "own" | "none";

export interface ResponseSpec {
  readonly description: string;
  readonly schema?: z.ZodType;
  /** Absent: `application/json` where there is a schema. Without a schema the answer is bytes of these types. */
  readonly mediaType?: string | readonly string[];
  /** More forms of the answer by media type: `text/event-stream` with the schema of one event's data. */
  readonly content?: Readonly<Record<string, z.ZodType>>;
}

export interface StreamSpec {
  readonly mediaTypes: readonly string[];
  readonly description: string;
  /** What it should be where it is JSON, for the document; absent: any JSON. */
  readonly json?: z.ZodType;
  /** It may be left out. */
  readonly optional?: true;
}

export interface RequestSpec<Params extends z.ZodType, Query extends z.ZodType, Body extends z.ZodType> {
  readonly params?: Params;
  readonly query?: Query;
  /** JSON body. */
  readonly body?: Body;
  /** A body that is read as it arrives, through `input.stream`. */
  readonly stream?: StreamSpec;
  /** Fields of the body whose numbers go on to others: none that would be changed by being read is taken. */
  readonly exact?: readonly string[];
  /**
   * A body in which a name stands twice in one object is refused, as one of the two would be lost. Absent: so it is where
   * the scope says that the body is kept, as configuration; requests for an answer are spared the second look.
   */
  readonly refusesRepeats?: true;
  /** Fields of the body with arguments of tools: whole numbers that would be changed are the texts of their digits. */
  readonly toolArguments?: readonly string[];
  /** Bytes; default 10 MiB. */
  readonly maxBytes?: number;
  /** Headers that the route reads itself, for the document: lower-case name and what it does. */
  readonly headers?: Readonly<Record<string, string>>;
}

/** Acts as the owner of the objects of the tenant-isolation suite. */
export interface IsolationDriver {
  /** Sends JSON as a caller with every scope; throws where the answer is not 2xx. */
  send(method: Method, path: string, body?: unknown): Promise<Record<string, unknown>>;
  /** Sends bytes as they are, likewise. */
  upload(path: string, bytes: Uint8Array<ArrayBuffer>): Promise<Record<string, unknown>>;
  /** A node of this name has connected and offers a tool. */
  registerNode(name: string): Promise<void>;
  /** The owner's calls that have ended are so many days older, and what is due to them is done. */
  passDays(days: number): Promise<void>;
}

/** How the tenant-isolation suite drives a route: the owner arranges, then a stranger sends the request. */
export type Isolation =
  /** The route names an object of the owner: the stranger gets 404 and the object stays as it was. */
  | {
      readonly kind: "object";
      readonly arrange: (owner: IsolationDriver) => Promise<IsolatedRequest>;
      /** The route makes what is missing, so its 404 cannot be compared with that of a missing object. */
      readonly createsMissing?: true;
    }
  /** The route lists: nothing of the owner shows up. Returns a text that would give it away. */
  | {
      readonly kind: "list";
      readonly arrange: (owner: IsolationDriver) => Promise<string>;
      /** With which it lists what `arrange` made, one item each; for the paging suite, too. */
      readonly query?: Readonly<Record<string, string>>;
    }
  /** The route names nothing that a tenant owns; says why. */
  | { readonly kind: "nothing-owned"; readonly reason: string };

export interface IsolatedRequest {
  readonly params: Readonly<Record<string, string>>;
  readonly query?: Readonly<Record<string, string>>;
  readonly body?: unknown;
}

interface BaseInput<Params extends z.ZodType, Query extends z.ZodType, Body extends z.ZodType> {
  readonly app: AppDeps;
  readonly core: CoreDeps;
  /** Every route of this app, for the document about them. */
  readonly routes: Readonly<Record<string, RouteModule>>;
  readonly params: z.output<Params>;
  readonly query: z.output<Query>;
  readonly body: z.output<Body>;
  /** The JSON body as it came; empty where the route takes none. */
  readonly bytes: Uint8Array;
  /** The body of a `stream` route. */
  readonly stream: AsyncIterable<Uint8Array>;
}

export interface AdmittedInput {
  readonly caller: Caller;
  readonly tenant: string;
  readonly config: TenantConfig;
  /** As it was proven, for what has to be proven again later. */
  readonly presented: Presented;
  readonly admitted: AdmitResult;
  readonly context: CallContext;
}

export interface OperatorInput {
  readonly caller: Caller;
  /** What `x-toolyard-tenant` names, else the default tenant; not proven to exist. */
  readonly namedTenant: string | undefined;
}

type AccessInput<Access extends Admission | "operator"> = Access extends "operator"
  ? OperatorInput
  : Access extends "own"
    ? { readonly presented: Presented }
    : Access extends "none"
      ? unknown
      : AdmittedInput;

type AccessOf<Who, How> = Who extends "operator" ? "operator" : How extends Admission ? How : "request";

export interface RouteDescription {
  readonly method: Method;
  /** OpenAPI spelling: `/v1/plugins/{id}`; `{path+}` also matches slashes. */
  readonly path: string;
  /** The address before the path's open end, with a slash behind it or none, is the route as well. */
  readonly opensAtRoot?: boolean;
  readonly summary: string;
  readonly description?: string;
  readonly tags: readonly string[];
  /** What the caller needs; null: any caller. `operator`: the operator's key only. */
  readonly scope: Scope | "operator" | null;
  readonly admission: Admission;
  readonly request: RequestSpec<z.ZodType, z.ZodType, z.ZodType>;
  /** `4XX` and `5XX` are all that is not there by itself. */
  readonly responses: Readonly<Record<number, ResponseSpec> & Partial<Record<"4XX" | "5XX", ResponseSpec>>>;
  readonly isolation?: Isolation;
  /** Answers with the one list shape and pages; the paging suite runs over it. */
  readonly list: boolean;
}

export interface RouteSpec<
  Params extends z.ZodType,
  Query extends z.ZodType,
  Body extends z.ZodType,
  Who extends Scope | "operator" | null,
  How extends Admission,
> extends Omit<RouteDescription, "request" | "admission" | "list" | "scope" | "responses"> {
  /** A function where their schemas are many: only documents and tests look at them. */
  readonly responses: RouteDescription["responses"] | (() => RouteDescription["responses"]);
  readonly scope: Who;
  readonly admission?: How;
  readonly request?: RequestSpec<Params, Query, Body>;
  readonly list?: boolean;
  readonly handler: (
    c: AppContext,
    input: BaseInput<Params, Query, Body> & AccessInput<AccessOf<Who, How>>,
  ) => Response | Promise<Response>;
}

/** What every route has at hand. */
export interface RouteServices {
  readonly app: AppDeps;
  readonly routes: Readonly<Record<string, RouteModule>>;
  readonly authenticator: Authenticator;
}

export interface RouteModule extends RouteDescription {
  readonly respond: (c: AppContext, services: RouteServices) => Promise<Response>;
  /**
   * The same as a part of another request, whose caller was admitted with that.
   * @throws GatewayError `permission_denied` where the caller lacks this route's scope; whatever the route throws
   */
  readonly perform: (c: AppContext, part: RequestPart) => Promise<Response>;
}

export interface RequestPart {
  readonly core: CoreDeps;
  readonly access: Omit<AdmittedInput, "admitted" | "presented">;
  readonly params?: Readonly<Record<string, string>>;
  readonly query?: Readonly<Record<string, string>>;
  readonly body?: unknown;
  readonly stream?: AsyncIterable<Uint8Array>;
}

const defaultMaxBytes = 10_485_760;

/**
 * @example
 * export const getPlugin = defineRoute({
 *   method: "get",
 *   path: "/v1/plugins/{id}",
 *   summary: "One plugin",
 *   tags: ["plugins"],
 *   scope: "manage",
 *   request: { params: z.object({ id: z.string() }) },
 *   responses: { 200: { description: "The plugin", schema: pluginSchema } },
 *   isolation: { kind: "object", arrange: async (owner) => ({ params: { id: await createPlugin(owner) } }) },
 *   handler: async (c, { core, tenant, params }) => c.json(await read(core, tenant, params.id)),
 * });
 */
export function defineRoute<
  Params extends z.ZodType = z.ZodUndefined,
  Query extends z.ZodType = z.ZodUndefined,
  Body extends z.ZodType = z.ZodUndefined,
  const Who extends Scope | "operator" | null = null,
  const How extends Admission = "request",
>(spec: RouteSpec<Params, Query, Body, Who, How>): RouteModule {
  const request = spec.request ?? {};
  const admission = spec.admission ?? "request";
  const keepsBody = request.refusesRepeats ?? (spec.scope === "manage" || spec.scope === "operator");
  const { handler, responses, ...description } = spec;
  return {
    ...description,
    get responses() {
      return typeof responses === "function" ? responses() : responses;
    },
    admission,
    request,
    list: spec.list ?? false,
    async perform(c, { core, access, params, query, body, stream = noBytes }) {
      if (spec.scope === "operator")
        throw new GatewayError("permission_denied", "Only the operator's key may do this.");
      if (spec.scope !== null) requireScope(access.caller, spec.scope);
      const input = {
        core,
        ...access,
        params: request.params === undefined ? undefined : check(request.params, params ?? {}, "path"),
        query: request.query === undefined ? undefined : check(request.query, query ?? {}, "query"),
        body: request.body === undefined ? undefined : check(request.body, body, "body"),
        bytes: nothing,
        stream,
      };
      // As below.
      return handler(c, input as unknown as Parameters<typeof handler>[1]);
    },
    async respond(c, services) {
      const needs: Needs = { scope: spec.scope, admission };
      let access = await grantAccess(c, services, needs);
      const since = performance.now();
      const read = await readRequest(c, request, keepsBody);
      if (admission === "request" && performance.now() - since > provenMs) {
        access = await grantAccess(c, services, { ...needs, isCounted: true });
      }
      const { app, routes } = services;
      const input = { app, routes, core: app.core, ...read, ...access };
      // The pieces of `input` were made for exactly this scope and admission; the compiler cannot follow that.
      return handler(c, input as unknown as Parameters<typeof handler>[1]);
    },
  };
}

/** Whoever has a body arrive for longer may have lost the key meanwhile, and is asked for it once more. */
const provenMs = 1_000;

interface Needs extends Pick<RouteDescription, "scope" | "admission"> {
  /** As a request of its minute, the first time that it was asked. */
  readonly isCounted?: boolean;
}

async function grantAccess(
  c: AppContext,
  { app, authenticator }: RouteServices,
  { scope, admission, isCounted = false }: Needs,
): Promise<Partial<AdmittedInput> | OperatorInput | { readonly presented: Presented }> {
  if (admission === "none") return {};
  const header = (name: string): string | undefined => headerOf(c, name);
  if (scope === "operator" && authenticator.isOperator(header)) {
    c.get("exchange").callerId = operatorCaller.id;
    return { caller: operatorCaller, namedTenant: header("x-toolyard-tenant") ?? app.defaultTenant };
  }
  const proving = authenticator.presentCaller(header);
  const presented = proving instanceof Promise ? await proving : proving;
  c.get("exchange").tenant = presented.tenant;
  if (scope !== "operator" && admission === "own") {
    if (isLargeBody(c)) await identify(app.core, presented, []);
    return { presented };
  }
  const { caller, config, result } = await admit(
    app.core,
    { ...presented, limits: { countRequest: !isCounted } },
    { scope: scope === "operator" ? null : scope },
  );
  c.get("exchange").callerId = caller.id;
  if (!isCounted) setRateLimitHeaders(c.get("exchange").headers, result.rate);
  if (scope === "operator") throw new GatewayError("permission_denied", "Only the operator's key may do this.");
  if (scope === null) refuseNode(caller);
  const { tenant } = presented;
  return { caller, config, tenant, presented, admitted: result, context: toCallContext(c, caller, config) };
}

/** Bytes of a body that are read and parsed of whoever may turn out to be nobody. */
const mostUnproven = 262_144;

/** One whose length is not said may be. */
function isLargeBody(c: AppContext): boolean {
  const length = headerOf(c, "content-length");
  return length === undefined ? headerOf(c, "transfer-encoding") !== undefined : Number(length) > mostUnproven;
}

/** What every caller may do a node may not: its key is for its connection. */
function refuseNode({ scopes }: Caller): void {
  const ofNodes: readonly Scope[] = ["node", "consume", "modules"];
  if (scopes.length === 0 || scopes.some((scope) => !ofNodes.includes(scope))) return;
  throw new GatewayError("permission_denied", "This key has the scopes of a node alone, which are for connecting it.", {
    param: "node",
  });
}

/** The context of a call made by this request. */
function toCallContext(c: AppContext, caller: Caller, config: TenantConfig): CallContext {
  const { requestId, traceId, span } = c.get("exchange");
  return { tenant: config.tenant, caller, config, requestId, traceId, span, redactor: new Redactor() };
}

async function readRequest(
  c: AppContext,
  request: RequestSpec<z.ZodType, z.ZodType, z.ZodType>,
  refusesRepeats: boolean,
): Promise<BaseRequest> {
  const params = request.params === undefined ? undefined : check(request.params, c.req.param(), "path");
  const query = request.query === undefined ? undefined : check(request.query, readQuery(c), "query");
  const limit = request.maxBytes ?? defaultMaxBytes;
  if (request.stream !== undefined) {
    return { params, query, body: undefined, bytes: nothing, stream: streamBody(c, limit) };
  }
  if (request.body === undefined) return { params, query, body: undefined, bytes: nothing, stream: noBytes };
  const bytes = await readBody(c, limit);
  const numbers = { refusedIn: request.exact, asTextIn: request.toolArguments };
  const body = check(request.body, parseJsonBody(c, bytes, { numbers, refusesRepeats }), "body");
  return { params, query, body, bytes, stream: noBytes };
}

interface BaseRequest {
  readonly params: unknown;
  readonly query: unknown;
  readonly body: unknown;
  readonly bytes: Uint8Array;
  readonly stream: AsyncIterable<Uint8Array>;
}

const nothing = new Uint8Array();

const noBytes: AsyncIterable<Uint8Array> = { [Symbol.asyncIterator]: async function* () {} };

/** A parameter given twice is a list, which a schema for one value refuses. */
function readQuery(c: AppContext): Record<string, string | string[]> {
  const query: Record<string, string | string[]> = {};
  for (const [name, values] of Object.entries(c.req.queries()))
    query[name] = values.length === 1 ? (values[0] ?? "") : values;
  return query;
}

/** @throws GatewayError `invalid_request` with `param` */
function check<Schema extends z.ZodType>(schema: Schema, value: unknown, part: Place): z.output<Schema> {
  if (value === undefined && part === "body" && !schema.safeParse(undefined).success) {
    throw new GatewayError("invalid_request", "This route needs a JSON body.");
  }
  const parsed = schema.safeParse(value);
  if (parsed.success) return parsed.data;
  const repeated = part === "query" ? repeatedField(parsed.error, value) : undefined;
  if (repeated === undefined) throw toInvalidRequest(parsed.error, part);
  throw new GatewayError("invalid_request", `Query field '${repeated}' is given more than once.`, { param: repeated });
}

/** A list that is refused is no number, too, but that is not what is wrong with it. */
function repeatedField({ issues }: z.ZodError, query: unknown): string | undefined {
  const given = new Map(Object.entries(query ?? {}));
  return issues.map(({ path: [name] }) => String(name)).find((name) => Array.isArray(given.get(name)));
}
