/**
 * What a scheme with services is: one file in tools/schemes, one line in its index. The scheme declares
 * configuration, options, tools and probe; resolving, permission, recording, policy, storage, routes and
 * the suite over all schemes (test/e2e/schemes.test.ts) follow from the declaration.
 */
import type * as z from "zod";
import type { CredentialResolver } from "../blind/credential-resolver.ts";
import type { ExplainedRequest } from "../tools/explained-request.ts";
import type { ReplyCache } from "../blind/reply-cache.ts";
import type { Role } from "../callers/caller.ts";
import type { CallContext } from "../context.ts";
import type { AdapterDeps } from "../deps.ts";
import type { JsonObject } from "../json.ts";
import type { OAuthClient } from "../oauth/client.ts";
import type { InvocationContext, ToolCall, ToolReply } from "../tools/tool-call.ts";
import type { Effect, Repeat } from "../tools/effect.ts";
import type { ToolScheme, UriOptions } from "../tools/uri.ts";
import type { BreakerOptions } from "./breaker.ts";
import type { HeldConnections } from "./held-connections.ts";
import type { ToolHints, ToolService } from "./service.ts";
import type { Tool } from "../tools/tool.ts";

/** A tool of a service, as its configuration or its back end describes it. */
export interface ServiceTool {
  /** What stands after the service id in the URI. */
  readonly id: string;
  readonly title?: string | undefined;
  readonly description: string;
  /** JSON Schema of an object. */
  readonly parameters: JsonObject;
  /** As of a `Tool`. */
  readonly carriesLongNumbers?: boolean;
  readonly outputSchema?: JsonObject | undefined;
  /** The tool by the option `method`, where it allows several; others are refused. */
  readonly byMethod?: ReadonlyMap<string, ServiceTool>;
  readonly effect: Effect;
  readonly effectOf?: (args: JsonObject) => Effect;
  /** What its back end claims of it. */
  readonly hints?: ToolHints | undefined;
  /** Its definition is not the accepted one: it is neither listed nor called. */
  readonly quarantined?: boolean;
  /** Absent: `never`. */
  readonly repeat?: Repeat | undefined;
  readonly sensitive?: boolean | undefined;
  readonly roles?: readonly Role[] | undefined;
  /** Reaches people or places outside the tenant's own services (mail, sms). */
  readonly outward?: boolean | undefined;
  /** Absent: `outside`. */
  readonly outputTrust?: "own" | "outside";
  /** Absent: every credential that the service's configuration refers to. */
  readonly requiredCredentials?: readonly string[];
  readonly actsForUser?: boolean;
  readonly timeoutMs?: number | undefined;
  readonly maxAttempts?: number | undefined;
}

/** What a back end said of its tools, and what of it is left out. */
export interface DiscoveredTools {
  readonly tools: readonly ServiceTool[];
  readonly warnings: readonly string[];
}

/**
 * Which definitions of discovered tools wait until somebody accepts them: `changed` ones, `all` that were
 * not there at first as well, or none (`off`).
 */
export type Pinning = "changed" | "all" | "off";

/** A service with its configuration read. */
export interface OpenService<Config> {
  readonly record: ToolService;
  readonly config: Config;
}

export interface ServiceCall<Config> extends OpenService<Config> {
  readonly tool: ServiceTool;
  readonly call: ToolCall;
}

/** What a back end gave when nobody waited for it. */
export interface LateCall<Config> extends OpenService<Config> {
  readonly tool: ServiceTool;
  /** Of the call's tool, for messages. */
  readonly name: string;
  readonly text: string;
}

export interface ProbeReport {
  /** What was found, for people; no secrets. */
  readonly detail: string;
}

/** What schemes are made from. */
export interface SchemeDeps extends AdapterDeps {
  readonly credentials: CredentialResolver;
  /** Connections that outlive a call; one pool for all schemes. */
  readonly connections: HeldConnections;
  /** Replies of reads, one store for all schemes over HTTP. */
  readonly replies: ReplyCache;
}

export interface SchemeBehaviour<Config> {
  /** Checks that span fields. @throws GatewayError whose `param` is a path below `config` */
  check?(service: OpenService<Config>, tenant: string): void | Promise<void>;
  /** Tools that are known without asking the back end; `record.discovered` holds what it said last. */
  tools(service: OpenService<Config>): readonly ServiceTool[];
  /** A tool that is not in the list: ids that are open (topics), or not discovered yet. */
  findTool?(service: OpenService<Config>, id: string): ServiceTool | undefined;
  /** Asks the back end for its tools; what it says is stored for every instance. Undefined where all are configured. */
  discover?(service: OpenService<Config>, context: InvocationContext): Promise<DiscoveredTools> | undefined;
  /** Absent: `off`. */
  pinning?(service: OpenService<Config>): Pinning;
  /** @throws GatewayError with the fate of the call known to `deliveryOf` */
  invoke(call: ServiceCall<Config>, context: InvocationContext): Promise<ToolReply>;
  /** As `ToolAdapter.handOver`; not asked where a breaker has to see what comes of it. */
  handOver?(call: ServiceCall<Config>, context: InvocationContext): Promise<boolean>;
  /** As `ToolAdapter.readLate`. */
  readLate?(late: LateCall<Config>, context: CallContext): Promise<ToolReply>;
  /** Spares a back end that fails, where its configuration asks for it. */
  breaker?(service: OpenService<Config>): BreakerOptions | undefined;
  /** Reaches the back end without a side effect. @throws GatewayError that says what is wrong */
  probe(service: OpenService<Config>, context: InvocationContext): Promise<ProbeReport>;
  /** Fields of the configuration that say where the back end is; none where they are the gateway's to know. */
  reachedBy(service: OpenService<Config>): readonly string[];
  /** The request of a call, for schemes over HTTP; null where there is none. */
  explain?(call: Omit<ServiceCall<Config>, "call">, request: ExplainInput): Promise<ExplainedRequest | null>;
  /** The client of a tool that acts for its user. */
  userClient?(call: Omit<ServiceCall<Config>, "call">, context: CallContext): Promise<OAuthClient | undefined>;
}

export interface ExplainInput {
  /** Validated, with defaults applied. */
  readonly arguments: JsonObject;
  readonly method: string | undefined;
  readonly context: CallContext;
}

export interface SchemeSpec<Config extends z.ZodType> {
  readonly scheme: ToolScheme;
  /** For pickers. */
  readonly title: string;
  readonly description: string;
  /** Name of an icon that the console has. */
  readonly icon: string;
  /** Strict; secrets by `secretField`. */
  readonly config: Config;
  /** Options of its URIs beside those that the dispatcher carries out (`timeout`, `max-attempts`, `async`). */
  readonly options: UriOptions;
  readonly create: (deps: SchemeDeps) => SchemeBehaviour<z.output<Config>>;
}

/** A scheme whose configuration's type is its own business. */
export interface ServiceScheme extends Omit<SchemeSpec<z.ZodType>, "create"> {
  readonly create: (deps: SchemeDeps) => SchemeBehaviour<unknown>;
}

export function defineScheme<Config extends z.ZodType<object>>(spec: SchemeSpec<Config>): ServiceScheme {
  // Whoever opens a service parses its configuration with this very schema, so the types agree.
  return spec;
}

/** What routes do with services, whatever the scheme. */
export interface ServiceRuntime {
  readonly scheme: ServiceScheme;
  /** Asks back ends for tools, rather than knowing them from the configuration. */
  readonly discovers: boolean;
  /** @throws GatewayError `invalid_definition`, `egress_denied` whose `param` is the field's path below `config` */
  check(tenant: string, record: ToolService): Promise<void>;
  /** Tools of a service, disabled or not, by id. @throws GatewayError `invalid_definition` */
  toolsOf(record: ToolService): readonly Tool[];
  /** Undefined for schemes whose tools are all configured. */
  discover(record: ToolService, context: InvocationContext): Promise<DiscoveredTools> | undefined;
  pinning(record: ToolService): Pinning;
  probe(record: ToolService, context: InvocationContext): Promise<ProbeReport>;
  /** Paths below `config`. @throws GatewayError `invalid_definition` */
  reachedBy(record: ToolService): readonly string[];
  /** Ends what is held for a service that is gone or disabled. */
  retire(tenant: string, record: Pick<ToolService, "id">): void;
}
