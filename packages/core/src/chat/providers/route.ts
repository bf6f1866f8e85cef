/**
 * Which back end answers, and what happens when it does not. A tenant's own providers come in the
 * tenant's order; a tenant that has none is served by the operator's, and where there is none either,
 * by the built-in scripted one.
 *
 * Repeating is for faults of the back end before the first event (429, 5xx, no connection): afterwards
 * the client has seen something, and a client that has left wants nothing repeated.
 */
import type { ErrorCode } from "../../errors/catalog.ts";
import { GatewayError, toGatewayError } from "../../errors/gateway-error.ts";
import type { JsonObject } from "../../json.ts";
import type { Clock } from "../../ports/clock.ts";
import type { Egress, EgressResponse } from "../../ports/egress.ts";
import type { Log } from "../../ports/log.ts";
import type { Span } from "../../ports/traces.ts";
import type { TenantConfig } from "../../tenant-config.ts";
import { schemaFamilyOf, type SchemaFamily } from "../../tools/schema-projection.ts";
import type { OriginalRequest } from "./forwardable-body.ts";
import { conversationFor } from "./conversation-form.ts";
import { isProviderKind, providerKinds, providerOf } from "./index.ts";
import type { ChatProvider, ProviderEvent, ProviderRecord, TakeEvents } from "./provider.ts";
import { scriptedModel } from "./scripted.ts";

/** The operator's back end (`OPENAI_BASE_URL`). */
export interface DefaultProvider {
  readonly baseUrl: string;
  readonly apiKey?: string;
  readonly model?: string;
}

export interface Route {
  readonly provider: ProviderRecord;
  /** The back end's name of the model. */
  readonly model: string;
  /** The name under which the caller knows it. */
  readonly requestedModel: string;
  /** Whose key is used. */
  readonly owner: "tenant" | "operator" | "built-in";
}

export interface ModelEntry {
  readonly id: string;
  /** Name of the provider that is asked first for it. */
  readonly ownedBy: string;
}

/** Callers name models as they like. */
const mostKnownModels = 200;
const known = new WeakMap<TenantConfig, Map<string | undefined, readonly Route[]>>();

/**
 * The back ends able to serve a model, in the order in which they are tried.
 * @param model undefined: `settings.default_model`, or the first model in the tenant's order
 * @throws GatewayError `model_not_found`, `invalid_request`
 */
export function resolveRoute(
  config: TenantConfig,
  model: string | undefined,
  defaultProvider?: DefaultProvider,
): readonly Route[] {
  // The operator's provider is not the tenant's to remember.
  if (config.providers.length === 0) return findRoutes(config, model, defaultProvider);
  let routes = known.get(config);
  if (routes === undefined) known.set(config, (routes = new Map<string | undefined, readonly Route[]>()));
  const found = routes.get(model) ?? findRoutes(config, model, defaultProvider);
  if (routes.size < mostKnownModels) routes.set(model, found);
  return found;
}

function findRoutes(
  config: TenantConfig,
  model: string | undefined,
  defaultProvider: DefaultProvider | undefined,
): readonly Route[] {
  const owner = ownerOf(config, defaultProvider);
  const providers = providersOf(config, defaultProvider);
  const wanted = model ?? config.settings.default_model ?? firstModel(providers);
  if (wanted === undefined) {
    const why = isAllOff(config) ? allOff : "No provider lists its models, and the setting default_model is not set.";
    throw new GatewayError("invalid_request", `'model' is required. ${why}`, { param: "model" });
  }
  const routes = providers.flatMap((provider) => {
    const backEndModel = modelAt(provider, wanted);
    return backEndModel === undefined ? [] : [{ provider, model: backEndModel, requestedModel: wanted, owner }];
  });
  if (routes.length > 0) return routes;
  throw new GatewayError("model_not_found", notFoundMessage(config, wanted, model === undefined), {
    param: model === undefined ? "default_model" : "model",
  });
}

/** As the first back end knows the model; as it is named, where none serves it. */
export function nameAtBackEnd(config: TenantConfig, model: string, defaultProvider?: DefaultProvider): string {
  const [name = model] = providersOf(config, defaultProvider).flatMap((provider) => modelAt(provider, model) ?? []);
  return name;
}

/** The models that are known to exist, for `GET /v1/models` (CHAT-16). */
export function listModels(config: TenantConfig, defaultProvider?: DefaultProvider): ModelEntry[] {
  const providers = providersOf(config, defaultProvider);
  const entries = new Map<string, ModelEntry>();
  const add = (id: string, { name }: ProviderRecord): void => {
    if (!entries.has(id)) entries.set(id, { id, ownedBy: name });
  };
  for (const provider of providers) for (const id of Object.keys(provider.models)) add(id, provider);
  const preferred = config.settings.default_model;
  const server = preferred === undefined ? undefined : providers.find((one) => modelAt(one, preferred) !== undefined);
  if (preferred !== undefined && server !== undefined) add(preferred, server);
  return [...entries.values()];
}

/**
 * `listModels`, and what back ends with `passthroughModels` say that they offer. One that does not
 * answer adds nothing: the list must not fail with it.
 */
export async function discoverModels(
  deps: RouteDeps,
  config: TenantConfig,
  signal: AbortSignal,
): Promise<ModelEntry[]> {
  const entries = new Map(listModels(config, deps.defaultProvider).map((entry) => [entry.id, entry]));
  const owner = ownerOf(config, deps.defaultProvider);
  const open = providersOf(config, deps.defaultProvider).filter((provider) => provider.passthroughModels);
  const lists = await Promise.all(open.map((provider) => askForModels(deps, { provider, owner }, signal)));
  for (const [at, provider] of open.entries()) {
    for (const id of lists[at] ?? []) if (!entries.has(id)) entries.set(id, { id, ownedBy: provider.name });
  }
  return [...entries.values()];
}

async function askForModels(
  deps: RouteDeps,
  route: Pick<Route, "provider" | "owner">,
  signal: AbortSignal,
): Promise<readonly string[]> {
  const { provider } = route;
  try {
    const backEnd = backEndOf(deps, provider);
    if (backEnd.listModels === undefined) return [];
    return await backEnd.listModels({ provider, apiKey: await keyFor(deps, route), signal, span: deps.span });
  } catch (thrown) {
    deps.log.log("warn", "provider lists no models", { provider: provider.name, error: toGatewayError(thrown).code });
    return [];
  }
}

// Which providers are there?

function ownerOf(config: TenantConfig, defaultProvider: DefaultProvider | undefined): Route["owner"] {
  if (config.providers.length > 0) return "tenant";
  return defaultProvider === undefined ? "built-in" : "operator";
}

/** A tenant that has switched all its providers off is not sent to somebody else's. */
function providersOf(config: TenantConfig, defaultProvider: DefaultProvider | undefined): readonly ProviderRecord[] {
  if (config.providers.length > 0) return config.providers.filter((provider) => provider.enabled);
  return [defaultProvider === undefined ? builtIn : operatorsRecord(defaultProvider)];
}

const ready = {
  credential: null,
  passthroughModels: true,
  schemaFamily: null,
  priority: 0,
  enabled: true,
  maxAttempts: 3,
  timeoutMs: 300_000,
} as const;

/** Takes every model name, so that examples run as they are; what answers says its own name. */
const builtIn: ProviderRecord = {
  ...ready,
  id: "scripted",
  name: "toolyard",
  kind: "scripted",
  baseUrl: "",
  models: { [scriptedModel]: scriptedModel },
};

function operatorsRecord({ baseUrl, apiKey, model }: DefaultProvider): ProviderRecord {
  return {
    ...ready,
    id: "operator",
    name: "default",
    kind: "openai",
    baseUrl,
    credential: apiKey === undefined ? null : "OPENAI_API_KEY",
    models: model === undefined ? {} : { [model]: model },
  };
}

function firstModel(providers: readonly ProviderRecord[]): string | undefined {
  for (const provider of providers) {
    const [first] = Object.keys(provider.models);
    if (first !== undefined) return first;
  }
  return undefined;
}

function modelAt(provider: ProviderRecord, model: string): string | undefined {
  if (Object.hasOwn(provider.models, model)) return provider.models[model];
  return provider.passthroughModels ? model : undefined;
}

function notFoundMessage(config: TenantConfig, wanted: string, isDefault: boolean): string {
  const what = isDefault
    ? `The setting default_model names '${wanted}', which no provider serves.`
    : `The model '${wanted}' does not exist.`;
  const known = listModels(config).map(({ id }) => id);
  if (known.length > 0) {
    const shown = known.slice(0, 20).join(", ");
    return `${what} Available: ${shown}${known.length > 20 ? ` and ${known.length - 20} more, see GET /v1/models` : ""}.`;
  }
  return `${what} ${isAllOff(config) ? allOff : "No provider lists any model; add 'models' or set passthrough_models."}`;
}

const allOff = "All providers are disabled; enable one.";

function isAllOff({ providers }: TenantConfig): boolean {
  return providers.every((provider) => !provider.enabled);
}

// Asking them.

export interface RouteDeps {
  readonly egress: Egress;
  readonly clock: Clock;
  readonly log: Log;
  readonly defaultProvider?: DefaultProvider;
  /** The value of a tenant's credential; called at the moment of use. */
  readonly credential: (name: string) => Promise<string>;
  /** Requests to back ends are told of under it. */
  readonly span?: Span | undefined;
}

export interface RoutedRequest {
  readonly routes: readonly Route[];
  /** `model` is set by the route taken. */
  readonly body: JsonObject;
  /** The request that `body` was made of. */
  readonly original?: OriginalRequest;
  readonly stream: boolean;
  readonly signal: AbortSignal;
  /** The tools of `body` for back ends that read schemas in another way. */
  readonly toolsFor?: (family: SchemaFamily) => readonly JsonObject[] | undefined;
  readonly onRoute?: (route: Route) => void;
  /** Called where nobody has answered the request as it is. True: it says less now, and is asked again. */
  readonly sayLess?: ((failure: GatewayError) => boolean) | undefined;
  readonly take?: TakeEvents | undefined;
}

/** Milliseconds before the second attempt; doubled for each further one. */
const firstBackoffMs = 250;
const longestBackoffMs = 8_000;
/** A back end that wants a longer pause is left alone: somebody is waiting. */
const longestPauseMs = 10_000;
const rememberedPauses = 1_000;

/**
 * The answer of the first back end that begins one.
 * @throws GatewayError of the last back end tried, with `details.extra.providers_tried`
 */
export function streamWithFallback(deps: RouteDeps, request: RoutedRequest): AsyncIterable<readonly ProviderEvent[]> {
  return { [Symbol.asyncIterator]: () => new FallbackIterator(deps, request) };
}

/**
 * Hands the chosen provider's own promises on: another generator around it would cost every token a
 * few turns of the queue.
 */
class FallbackIterator implements AsyncIterator<readonly ProviderEvent[], void, void> {
  readonly #deps: RouteDeps;
  readonly #request: RoutedRequest;
  #events: AsyncGenerator<readonly ProviderEvent[], void, void> | undefined;

  constructor(deps: RouteDeps, request: RoutedRequest) {
    this.#deps = deps;
    this.#request = request;
  }

  next(): Promise<IteratorResult<readonly ProviderEvent[], void>> {
    return this.#events === undefined ? this.#open() : this.#events.next();
  }

  async return(): Promise<IteratorResult<readonly ProviderEvent[], void>> {
    await this.#events?.return();
    return { done: true, value: undefined };
  }

  async #open(): Promise<IteratorResult<readonly ProviderEvent[], void>> {
    const opened = await openFirst(this.#deps, this.#request);
    this.#events = opened.events;
    return opened.first;
  }
}

/** A request that is relayed: its answer is not read here. */
export interface RelayedRequest extends Asked {
  readonly path: string;
  readonly accept: string;
  /** The body for a back end that knows the model under this name. */
  readonly bytesFor: (model: string) => Uint8Array | string;
}

/**
 * The head of the first back end's answer that is one; its body is for the caller to read or to leave.
 * @throws GatewayError as `streamWithFallback`
 */
export function relayWithFallback(deps: RouteDeps, request: RelayedRequest): Promise<EgressResponse> {
  return askOrSayLess(deps, request, (route) => relayOnce(deps, route, request));
}

async function relayOnce(deps: RouteDeps, route: Route, request: RelayedRequest): Promise<EgressResponse> {
  const { provider, model } = route;
  const { path, accept, signal } = request;
  const backEnd = backEndOf(deps, provider);
  if (backEnd.relay === undefined) {
    throw new GatewayError(
      "model_not_found",
      `Provider '${provider.name}' answers chats only; add one with POST /v1/providers whose back end has '${path}'.`,
      { param: "model" },
    );
  }
  const apiKey = await keyFor(deps, route);
  return backEnd.relay({
    provider,
    apiKey,
    signal,
    span: deps.span,
    path,
    accept,
    model,
    bytes: request.bytesFor(model),
  });
}

interface Opened {
  readonly first: IteratorResult<readonly ProviderEvent[], void>;
  readonly events: AsyncGenerator<readonly ProviderEvent[], void, void>;
}

function openFirst(deps: RouteDeps, request: RoutedRequest): Promise<Opened> {
  return askOrSayLess(deps, request, (route) => openOnce(deps, route, request));
}

type Asked = Pick<RoutedRequest, "routes" | "signal" | "onRoute" | "sayLess">;
type AskOnce<Answer> = (route: Route) => Promise<Answer>;

const refusals: ReadonlySet<ErrorCode> = new Set(["provider_rejected", "context_length_exceeded", "content_filter"]);

/** For good; back ends refuse for contents with 403, too. */
export function isRefusal({ code, details }: GatewayError): boolean {
  return refusals.has(code) || details.extra?.["upstream_status"] === 403;
}

/** The same where it has pictures in it: some back ends whose models have no eyes say so as if they were broken. */
export function mayRefusePictures(failure: GatewayError): boolean {
  return isRefusal(failure) || failure.details.extra?.["upstream_status"] === 500;
}

/** With less, and less again, where that may help. */
async function askOrSayLess<Answer extends object>(
  deps: RouteDeps,
  request: Asked,
  ask: AskOnce<Answer>,
): Promise<Answer> {
  for (;;) {
    try {
      return await askInTurn(deps, request, ask);
    } catch (thrown) {
      if (!(thrown instanceof GatewayError) || request.sayLess?.(thrown) !== true) throw thrown;
      deps.log.log("warn", "a refused request is sent again and says less", { error: thrown.code });
    }
  }
}

/** What the first back end says that answers. */
async function askInTurn<Answer extends object>(
  deps: RouteDeps,
  request: Asked,
  ask: AskOnce<Answer>,
): Promise<Answer> {
  const tried: string[] = [];
  let failure: GatewayError | undefined;
  for (const route of restedFirst(deps, request.routes)) {
    tried.push(route.provider.name);
    const result = await tryRoute(deps, route, { signal: request.signal, ask });
    if (!(result instanceof GatewayError)) {
      request.onRoute?.(route);
      return result;
    }
    failure = result;
    if (!mayMoveOn(failure)) break;
    deps.log.log("warn", "provider failed", { provider: route.provider.name, model: route.model, error: failure.code });
  }
  failure ??= new GatewayError("internal_error", "No back end was given to be asked.");
  if (tried.length < 2) throw failure;
  throw new GatewayError(failure.code, failure.message, {
    ...failure.details,
    extra: { ...failure.details.extra, providers_tried: tried },
  });
}

/** The answer, or why there is none. */
async function tryRoute<Answer extends object>(
  deps: RouteDeps,
  route: Route,
  { signal, ask }: { readonly signal: AbortSignal; readonly ask: AskOnce<Answer> },
): Promise<Answer | GatewayError> {
  const { provider } = route;
  for (let attempt = 1; ; attempt += 1) {
    let result: Answer | GatewayError;
    try {
      result = signal.aborted ? givenUp(signal) : await ask(route);
    } catch (thrown) {
      result = toGatewayError(thrown);
    }
    if (!(result instanceof GatewayError)) return result;
    if (result.code === "provider_rate_limited") remember(deps, provider, result.details.retryAfterMs);
    if (attempt >= provider.maxAttempts || !mayRepeat(result)) return result;
    const pause = Math.max(backoff(attempt), result.details.retryAfterMs ?? 0);
    if (pause > longestPauseMs) return result;
    await deps.clock.sleep(pause, signal).catch(() => undefined);
    if (signal.aborted) return givenUp(signal);
  }
}

async function openOnce(deps: RouteDeps, route: Route, request: RoutedRequest): Promise<Opened> {
  const { provider, model } = route;
  const family = provider.schemaFamily ?? schemaFamilyOf(model);
  const tools = family === "openai" ? undefined : request.toolsFor?.(family);
  const messages = conversationFor({ model, family }, request.body["messages"]);
  const key = keyFor(deps, route);
  const events = backEndOf(deps, provider).stream({
    body: {
      ...request.body,
      ...(messages === undefined ? {} : { messages }),
      ...(tools === undefined ? {} : { tools: [...tools] }),
      model,
    },
    ...(request.original === undefined ? {} : { original: request.original }),
    stream: request.stream,
    signal: request.signal,
    apiKey: key instanceof Promise ? await key : key,
    provider,
    span: deps.span,
    take: request.take,
  });
  return { first: await events.next(), events };
}

function backEndOf(deps: RouteDeps, { kind, name }: ProviderRecord): ChatProvider {
  if (isProviderKind(kind)) return providerOf(kind, deps);
  throw new GatewayError(
    "provider_failed",
    `Provider '${name}' is of the unknown kind '${kind}'; use one of ${providerKinds.join(", ")}.`,
  );
}

function keyFor(
  deps: RouteDeps,
  { provider, owner }: Pick<Route, "provider" | "owner">,
): Promise<string> | string | undefined {
  if (owner === "operator") return deps.defaultProvider?.apiKey;
  return provider.credential === null ? undefined : deps.credential(provider.credential);
}

const faults: ReadonlySet<string> = new Set([
  "provider_rate_limited",
  "provider_unavailable",
  "provider_stream_incomplete",
]);

/** Another provider may do better, also at once after a time-out or with an empty account. */
function mayMoveOn({ code, details }: GatewayError): boolean {
  if (details.extra?.["before_first_byte"] !== true) return false;
  return faults.has(code) || details.extra["quota_exhausted"] === true;
}

/** The same provider may do better. */
function mayRepeat(error: GatewayError): boolean {
  return mayMoveOn(error) && faults.has(error.code) && error.details.extra?.["timed_out"] !== true;
}

function backoff(attempt: number): number {
  const full = Math.min(firstBackoffMs * 2 ** (attempt - 1), longestBackoffMs);
  return full * (0.5 + Math.random() / 2);
}

function givenUp(signal: AbortSignal): GatewayError {
  if (signal.reason instanceof GatewayError) return signal.reason;
  return new GatewayError("request_cancelled", "The request was cancelled.");
}

// Which of them asked for a pause? Known to this process only: it saves a request, nothing depends on it.

const pauses = new WeakMap<Egress, Map<string, number>>();

function remember({ egress, clock }: RouteDeps, provider: ProviderRecord, retryAfterMs: number | undefined): void {
  if (retryAfterMs === undefined) return;
  let known = pauses.get(egress);
  if (known === undefined || known.size >= rememberedPauses) pauses.set(egress, (known = new Map<string, number>()));
  known.set(provider.id, clock.now() + retryAfterMs);
}

/** Those that asked for a pause come last, in their order. */
function restedFirst({ egress, clock }: RouteDeps, routes: readonly Route[]): Route[] {
  const known = pauses.get(egress);
  if (known === undefined || routes.length < 2) return [...routes];
  const now = clock.now();
  const isPaused = ({ provider }: Route): boolean => (known.get(provider.id) ?? 0) > now;
  return [...routes.filter((route) => !isPaused(route)), ...routes.filter(isPaused)];
}
