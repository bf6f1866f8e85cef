/**
 * Every answer that a test sees is held against what its route declares, so that OpenAPI cannot say one
 * thing and the gateway another.
 */
import * as z from "zod";
import type { RouteModule } from "../../functions/http/define-route.ts";
import { routes } from "../../functions/http/routes/index.ts";

interface Answer {
  readonly status: number;
  readonly json: unknown;
}

const errorSchema = z.strictObject({
  error: z.looseObject({
    message: z.string().min(1),
    type: z.enum([
      "invalid_request_error",
      "authentication_error",
      "permission_error",
      "not_found_error",
      "rate_limit_error",
      "tool_execution_error",
      "api_error",
    ]),
    param: z.string().nullable(),
    code: z.string().min(1),
    request_id: z.string().min(1),
  }),
  partial: z.looseObject({}).optional(),
});

const patterns = Object.values(routes as Readonly<Record<string, RouteModule>>).map((route) => ({
  route,
  pattern: toPattern(route.path, route.opensAtRoot),
}));

function toPattern(path: string, opensAtRoot = false): RegExp {
  const literal = path.replaceAll(/[^\w/{}+-]/g, "\\$&");
  const open = opensAtRoot ? literal.replace(/\/\{\w+\+\}$/, "(?:/.*)?") : literal;
  return new RegExp(`^${open.replaceAll(/\{\w+\}/g, "[^/]+").replaceAll(/\{\w+\+\}/g, ".+")}$`, "s");
}

/**
 * @returns whether the route declares a form for this status; an error then has a body of its own
 * @throws Error saying what the route declares and what it answered
 */
export function requireDeclared(method: string, target: string, answer: Answer): boolean {
  const route = findRoute(method, target);
  const { status, json } = answer;
  const declared = route?.responses[status];
  const schema = declared?.schema ?? (status >= 400 && status !== 416 ? errorSchema : undefined);
  if (route !== undefined && status < 400 && declared === undefined) {
    throw new Error(`${method} ${route.path} answered ${status}, which it does not declare`);
  }
  if (schema === undefined || json === undefined) return declared?.schema !== undefined;
  const parsed = schema.safeParse(json);
  if (parsed.success) return declared?.schema !== undefined;
  throw new Error(
    `${method} ${target} answered ${status} in another form than it declares:\n${z.prettifyError(parsed.error)}\n${JSON.stringify(json)}`,
  );
}

function findRoute(method: string, target: string): RouteModule | undefined {
  // As the server reads it: `%2e%2e` in a path is a step back.
  const path = URL.parse(`http://gateway${target}`)?.pathname ?? target;
  const wanted = method.toLowerCase() === "head" ? "get" : method.toLowerCase();
  return patterns.find(({ route, pattern }) => route.method === wanted && pattern.test(path))?.route;
}
