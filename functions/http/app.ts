/** The HTTP face of the gateway: one app for the server form, Lambda and tests. */
import type { CoreDeps } from "@toolyard/core/core-deps";
import { GatewayError, toGatewayError } from "@toolyard/core/errors/gateway-error";
import { Hono } from "hono";
import type { AppContext, AppDeps, AppEnv } from "./app-env.ts";
import { authenticatorOf } from "./authenticator.ts";
import type { RouteModule } from "./define-route.ts";
import { describeThrown } from "../describe-thrown.ts";
import { doubt } from "./doubts.ts";
import { toErrorReply } from "./errors.ts";
import { toMcpRefusal } from "./mcp-refusal.ts";
import { once } from "@toolyard/core/once";
import { findMeantRoute, hasEmptyPart, isOfBase } from "./meant-route.ts";
import { answerInExchange } from "./exchange.ts";
import { answerPreflight } from "./preflight.ts";
import { challengeFor } from "./protected-resource.ts";
import { TableRouter } from "./table-router.ts";

/** @param routes those that this host serves */
export function createApp(deps: AppDeps, routes: Readonly<Record<string, RouteModule>>): Hono<AppEnv> {
  const app = new Hono<AppEnv>({ router: new TableRouter() });
  const { core } = deps;
  const authenticator = authenticatorOf(deps);
  const services = { app: deps, routes, authenticator };
  const exchange = {
    log: core.log,
    metrics: deps.metrics,
    traces: core.traces,
    answerError: (c: AppContext, thrown: unknown): Response => answerError(c, thrown, core),
  };
  // Around each handler, and not as hono's middleware: every layer of that costs each request promises.
  const answered = (respond: (c: AppContext) => Response | Promise<Response>) => (c: AppContext) =>
    answerInExchange(c, exchange, respond);
  app.on("OPTIONS", "*", answered(answerPreflight));
  for (const route of Object.values(routes)) {
    const respond = (c: AppContext): Promise<Response> => {
      c.get("exchange").route = route.path;
      return route.respond(c, services);
    };
    for (const path of addressesOf(route)) app.on(route.method.toUpperCase(), toHonoPath(path), answered(respond));
  }
  const all = Object.values(routes);
  const allowed = allowedMethods(all);
  // Nobody waits for it at the start of a function.
  const meant = once(() => findMeantRoute(all));
  app.notFound(answered((c) => exchange.answerError(c, unmatched(c, { allowed, meant }))));
  return app;
}

function answerError(c: AppContext, thrown: unknown, core: CoreDeps): Response {
  const error = toGatewayError(thrown);
  const { requestId, traceId, span, route, log, rpcId = null } = c.get("exchange");
  // A caller's mistake is told, but is no failure of the server.
  span?.set({ "error.type": error.code });
  if (error.spec.http >= 500) {
    doubt(core, error.code);
    log.log(error.code === "internal_error" ? "error" : "warn", "request failed", {
      request_id: requestId,
      trace_id: traceId,
      route,
      code: error.code,
      ...describeThrown(error),
    });
  }
  const { status, headers, body } = toErrorReply(error, requestId);
  const { method, path } = c.req;
  const refusal = toMcpRefusal(error, { method, path, accept: c.req.header("accept"), requestId, rpcId });
  const challenge = challengeFor(error, { publicUrl: core.publicUrl, path, tenant: c.req.query("tenant") });
  return new Response(refusal ?? body, {
    status,
    headers: challenge === undefined ? headers : { ...headers, "www-authenticate": challenge },
  });
}

/** Where clients of other model APIs ask that are set to this one's address. */
const otherApis: ReadonlySet<string> = new Set(["/v1/completions", "/v1/messages", "/v1/responses"]);

type AllowedMethods = ReturnType<typeof allowedMethods>;

interface Addresses {
  readonly allowed: AllowedMethods;
  readonly meant: () => ReturnType<typeof findMeantRoute>;
}

function unmatched(c: AppContext, { allowed, ...addresses }: Addresses): GatewayError {
  const { method, path } = c.req;
  const methods = allowed(path);
  if (methods.length === 0) {
    const instead = insteadOf(method, path, addresses.meant);
    return new GatewayError("not_found", `There is no route ${method} ${path}; ${instead}GET /openapi.json lists all.`);
  }
  c.get("exchange").headers["allow"] = methods.join(", ");
  return new GatewayError("method_not_allowed", `This path answers ${methods.join(", ")}, not ${method}.`);
}

function addressesOf({ path, opensAtRoot = false }: RouteModule): readonly string[] {
  const root = path.replace(/\/\{\w+\+\}$/, "");
  return opensAtRoot ? [path, root, `${root}/`] : [path];
}

/** What whoever asked there may have meant, as a part of a sentence. */
function insteadOf(method: string, path: string, findMeant: Addresses["meant"]): string {
  if (otherApis.has(path)) return "models answer at POST /v1/chat/completions, and ";
  if (hasEmptyPart(path)) return "nothing stands between two of its slashes, where an id may be missing; ";
  const meant = findMeant()(method, path);
  if (meant === undefined) return "";
  const base = isOfBase(meant, path) ? ": look at the base address that the client is set to" : "";
  return `there is ${method} ${meant}${base}; `;
}

/** `/v1/plugins/{id}` as hono spells it; `{path+}` also matches slashes. */
function toHonoPath(path: string): string {
  return path.replaceAll(/\{(\w+)\}/g, ":$1").replaceAll(/\{(\w+)\+\}/g, ":$1{.+}");
}

function allowedMethods(routes: readonly RouteModule[]): (path: string) => readonly string[] {
  const patterns = routes.flatMap((route) =>
    addressesOf(route).map((path) => ({ method: route.method.toUpperCase(), pattern: toPattern(path) })),
  );
  return (path) => {
    const found = patterns.filter(({ pattern }) => pattern.test(path)).map(({ method }) => method);
    return [...new Set(found.includes("GET") ? [...found, "HEAD"] : found)].sort();
  };
}

function toPattern(path: string): RegExp {
  const literal = path.replaceAll(/[^\w/{}+-]/g, "\\$&");
  return new RegExp(`^${literal.replaceAll(/\{\w+\}/g, "[^/]+").replaceAll(/\{\w+\+\}/g, ".+")}$`);
}
