/**
 * What modules know as `express`: as much of its interface as they use to register routes. Requests and responses
 * are Node's own with its methods added.
 */
import { METHODS, type IncomingMessage, type ServerResponse } from "node:http";
import { json, raw, serveStatic, text, urlencoded } from "./express-middleware.ts";
import { extendRequest, type PluginRequest } from "./express-request.ts";
import { extendResponse, type PluginResponse } from "./express-response.ts";
import { passThrough, type Layer, type Next, type ParamHandlers, type Registered } from "./express-passage.ts";
import { createMatcher, type Path } from "./path-pattern.ts";

export type Handler = (request: PluginRequest, response: PluginResponse, next: Next) => unknown;
type Chain = Readonly<Record<string, (...handlers: unknown[]) => unknown>>;

export interface Routing extends Handler {
  use(...args: unknown[]): Routing;
  param(name: string, handler: unknown): Routing;
  route(path: Path): Chain;
  /** Each method of HTTP, in lower case, and `all`. */
  [method: string]: unknown;
}

export interface Application {
  (request: IncomingMessage, response: ServerResponse, next?: unknown): void;
  use(...args: unknown[]): Routing;
}

const verbs = [...METHODS.map((method) => method.toLowerCase()), "all"];

/** Registers routes and carries requests through them. */
class Routes {
  readonly layers: Layer[] = [];
  readonly params: ParamHandlers = new Map();

  add(method: string | undefined, path: Path, handlers: readonly unknown[]): void {
    const all = handlers.flat(Number.POSITIVE_INFINITY).map(toRegistered);
    this.layers.push({ method, match: createMatcher(path, method !== undefined), handlers: all });
  }

  /** With the methods that register. */
  onto<F extends (...args: never[]) => unknown>(target: F): F & Routing {
    const byVerb = Object.fromEntries(
      verbs.map((verb) => [
        verb,
        (path: Path, ...handlers: unknown[]): unknown => {
          this.add(verb === "all" ? "*" : verb.toUpperCase(), path, handlers);
          return routing;
        },
      ]),
    );
    const routing = Object.assign(target, byVerb, {
      stack: this.layers,
      use: (...args: unknown[]): Routing => {
        const [first, ...rest] = args;
        if (isPath(first)) this.add(undefined, first, rest);
        else this.add(undefined, "/", args);
        return routing;
      },
      param: (name: string, handler: unknown): Routing => {
        if (typeof handler !== "function") throw new TypeError("a parameter's handler must be a function");
        this.params.set(name, [...(this.params.get(name) ?? []), handler]);
        return routing;
      },
      route: (path: Path): Chain => {
        const chain: Chain = Object.fromEntries(
          verbs.map((verb) => [
            verb,
            (...handlers: unknown[]): unknown => {
              this.add(verb === "all" ? "*" : verb.toUpperCase(), path, handlers);
              return chain;
            },
          ]),
        );
        return chain;
      },
      // Typed as what it is used as: an index of methods beside those named here.
    }) as unknown as F & Routing;
    return routing;
  }
}

function isPath(value: unknown): value is Path {
  if (Array.isArray(value)) return value.length > 0 && value.every((each) => isPath(each));
  return typeof value === "string" || value instanceof RegExp;
}

function toRegistered(value: unknown): Registered {
  if (typeof value !== "function") throw new TypeError("a route's handler must be a function");
  return { run: value, isForErrors: value.length === 4 };
}

export function Router(): Routing {
  const routes = new Routes();
  return routes.onto((request: PluginRequest, response: PluginResponse, next: Next) =>
    passThrough(routes, request, response, next),
  );
}

function createApplication(): Application {
  const routes = new Routes();
  const settings = new Map<unknown, unknown>();
  const app = routes.onto((incoming: IncomingMessage, outgoing: ServerResponse, after?: unknown): void => {
    const request = extendRequest(incoming);
    const response = extendResponse(outgoing, request);
    passThrough(routes, request, response, (problem) => {
      if (typeof after === "function") Reflect.apply(after, undefined, problem === undefined ? [] : [problem]);
      else answerUnhandled(request, response, problem);
    });
  });
  const route = Reflect.get(app, "get");
  const setTo =
    (value?: boolean) =>
    (name: unknown, given?: unknown): unknown => {
      settings.set(name, value ?? given);
      return app;
    };
  return Object.assign(app, {
    locals: {},
    set: setTo(),
    enable: setTo(true),
    disable: setTo(false),
    enabled: (name: unknown) => settings.get(name) === true,
    disabled: (name: unknown) => settings.get(name) !== true,
    /** With a name alone it reads a setting. */
    get: (...args: unknown[]): unknown =>
      args.length === 1 ? settings.get(args[0]) : typeof route === "function" && Reflect.apply(route, app, args),
  });
}

/** Nothing has answered, or what was to answer has failed. */
function answerUnhandled(request: PluginRequest, response: PluginResponse, problem: unknown): void {
  if (response.headersSent) {
    response.destroy();
    return;
  }
  if (problem === undefined) {
    response
      .status(404)
      .type("text/plain")
      .send(`Cannot ${request.method ?? ""} ${request.path}`);
    return;
  }
  response.status(statusOf(problem)).type("text/plain").send("The plugin failed to answer this request.");
}

function statusOf(problem: unknown): number {
  if (typeof problem !== "object" || problem === null) return 500;
  const named: unknown = Reflect.get(problem, "status") ?? Reflect.get(problem, "statusCode");
  return typeof named === "number" && named >= 400 && named <= 599 ? named : 500;
}

/** As modules call it: `express()`, `express.Router()`, `express.json()` and so on. */
export interface Express {
  (): Application;
  readonly Router: typeof Router;
  readonly json: typeof json;
  readonly urlencoded: typeof urlencoded;
  readonly text: typeof text;
  readonly raw: typeof raw;
  readonly static: typeof serveStatic;
}

export const express: Express = Object.assign((): Application => createApplication(), {
  Router,
  json,
  urlencoded,
  text,
  raw,
  static: serveStatic,
});
