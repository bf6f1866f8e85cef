/** What a scheme's schema says of a configuration, as the error that names the field. */
import type * as z from "zod";
import { GatewayError } from "../errors/gateway-error.ts";

export interface ConfigProblem {
  readonly path: readonly string[];
  readonly problem: string;
}

/** The first thing that is wrong. */
export function problemOf(error: z.core.$ZodError): ConfigProblem {
  const issue = deepest(error.issues);
  if (issue === undefined) return { path: [], problem: "is not valid" };
  const path = issue.path.map(String);
  if (issue.code !== "unrecognized_keys") {
    return { path, problem: issue.message.replace(/^Invalid input: /, "is not valid: ") };
  }
  const problem = "is not a field of this configuration; GET /v1/tool-services/schemes lists those of each scheme";
  return { path: [...path, ...issue.keys.slice(0, 1)], problem };
}

/** The error's `param` is `config.…`, as the field stands in the request. */
export function toInvalidConfig(error: z.ZodError): GatewayError {
  const { path, problem } = problemOf(error);
  return invalidConfig(path.join("."), problem);
}

type Issue = z.core.$ZodIssue;

/** In a union, what the branch says that came furthest; of those that went nowhere, the one whose type it has. */
function deepest(issues: readonly Issue[]): Issue | undefined {
  const [first] = issues;
  if (first?.code !== "invalid_union") return first;
  const inner = first.errors
    .map((branch) => deepest(branch))
    .filter((issue) => issue !== undefined)
    .filter((issue) => issue.path.length > 0 || issue.code !== "invalid_type")
    .sort((a, b) => b.path.length - a.path.length)[0];
  if (inner !== undefined) return { ...inner, path: [...first.path, ...inner.path] };
  return { ...first, message: "has none of the forms that it may have" };
}

/** @param path below `config`; empty: the configuration as a whole */
export function invalidConfig(path: string, problem: string): GatewayError {
  const field = path === "" ? "config" : `config.${path}`;
  return new GatewayError("invalid_definition", `'${field}' ${problem}.`, { param: field });
}
