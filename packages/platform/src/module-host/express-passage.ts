/** One request's way through the routes of one router: handlers in order, errors to those that take them. */
import type { PluginRequest } from "./express-request.ts";
import type { PluginResponse } from "./express-response.ts";
import type { Matched, Matcher } from "./path-pattern.ts";

export type Next = (problem?: unknown) => void;

export interface Registered {
  readonly run: Function;
  /** Takes four parameters. */
  readonly isForErrors: boolean;
}

export interface Layer {
  /** Upper case; `*`: any; undefined: any, and whatever lies below its path. */
  readonly method: string | undefined;
  readonly match: Matcher;
  readonly handlers: readonly Registered[];
}

export type ParamHandlers = Map<string, readonly Function[]>;

export interface RouteTable {
  readonly layers: readonly Layer[];
  readonly params: ParamHandlers;
}

/** @param after what follows the router */
export function passThrough(
  { layers, params }: RouteTable,
  request: PluginRequest,
  response: PluginResponse,
  after: Next,
): void {
  const before = { url: request.url, baseUrl: request.baseUrl, params: request.params };
  const restore = (): void => {
    request.url = before.url ?? "/";
    request.baseUrl = before.baseUrl;
    request.params = before.params;
  };
  const leave = (problem?: unknown): void => {
    restore();
    // As `express` has it: leaves the router, and is no error.
    after(problem === "router" ? undefined : problem);
  };
  const enter = (at: number, problem: unknown): void => {
    restore();
    if (problem === "router") return leave();
    const found = findLayer(layers, at, request);
    if (found === undefined) return leave(problem);
    const { layer, index, matched } = found;
    request.params = { ...before.params, ...matched.params };
    if (layer.method === undefined) moveBelow(request, matched.path);
    const next = (failed?: unknown): void => enter(index + 1, failed === "route" ? undefined : failed);
    runParams(params, matched.params, { request, response, problem }, (failed) =>
      runHandlers(layer.handlers, { request, response, problem: failed }, next),
    );
  };
  enter(0, undefined);
}

interface At {
  readonly request: PluginRequest;
  readonly response: PluginResponse;
  readonly problem: unknown;
}

function findLayer(
  layers: readonly Layer[],
  from: number,
  request: PluginRequest,
): { readonly layer: Layer; readonly index: number; readonly matched: Matched } | undefined {
  for (let index = from; index < layers.length; index += 1) {
    const layer = layers[index];
    if (layer === undefined || !takesMethod(layer, request.method)) continue;
    const matched = layer.match(request.path);
    if (matched !== undefined) return { layer, index, matched };
  }
  return undefined;
}

function takesMethod({ method }: Layer, asked: string | undefined): boolean {
  if (method === undefined || method === "*" || method === asked) return true;
  return method === "GET" && asked === "HEAD";
}

/** Handlers see the path below that of their router. */
function moveBelow(request: PluginRequest, path: string): void {
  const base = path.replace(/\/$/, "");
  const rest = (request.url ?? "/").slice(base.length);
  request.url = rest.startsWith("/") ? rest : `/${rest}`;
  request.baseUrl += base;
}

function runParams(
  handlers: ParamHandlers,
  params: Matched["params"],
  { request, response, problem }: At,
  done: Next,
): void {
  const due = Object.entries(params).flatMap(([name, value]) =>
    (handlers.get(name) ?? []).map((run) => ({ name, value, run })),
  );
  const step = (at: number, failed: unknown): void => {
    const each = due[at];
    if (each === undefined || failed !== undefined) return done(failed);
    run(each.run, [request, response, once((next) => step(at + 1, next)), each.value, each.name], (next) => done(next));
  };
  step(0, problem);
}

function runHandlers(handlers: readonly Registered[], { request, response, problem }: At, done: Next): void {
  const step = (at: number, failed: unknown): void => {
    const handler = handlers[at];
    if (handler === undefined || failed === "route" || failed === "router") return done(failed);
    // Errors go to those that take them, and everything else to those that do not.
    if (handler.isForErrors !== (failed !== undefined)) return step(at + 1, failed);
    const next = once((given) => step(at + 1, given ?? undefined));
    const args = handler.isForErrors ? [failed, request, response, next] : [request, response, next];
    run(handler.run, args, next);
  };
  step(0, problem);
}

/** What a handler throws, at once or later, is its error. */
function run(handler: Function, args: readonly unknown[], failed: Next): void {
  try {
    const given: unknown = Reflect.apply(handler, undefined, args);
    if (given instanceof Promise) given.catch((thrown: unknown) => failed(thrown ?? new Error("rejected")));
  } catch (thrown) {
    failed(thrown ?? new Error("thrown"));
  }
}

function once(next: Next): Next {
  let isDone = false;
  return (problem) => {
    if (isDone) return;
    isDone = true;
    next(problem);
  };
}
