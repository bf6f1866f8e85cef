/** What a scheme's schema says of a configuration, as the error that names the field. */
import type * as z from "zod";
import { GatewayError } from "../errors/gateway-error.ts";
import { schemaProblem, type SchemaProblem } from "../errors/schema-problems.ts";

export interface ConfigProblem {
  readonly path: SchemaProblem["path"];
  readonly problem: string;
}

/** The first thing that is wrong. */
export function problemOf(error: z.core.$ZodError): ConfigProblem {
  const { path, kind, says } = schemaProblem(error);
  return { path, problem: kind === "unknown" ? unknownField : says };
}

const unknownField = "is not a field of this configuration; GET /v1/tool-services/schemes lists those of each scheme";

/** The error's `param` is `config.…`, as the field stands in the request. */
export function toInvalidConfig(error: z.ZodError): GatewayError {
  const { path, problem } = problemOf(error);
  return invalidConfig(path.join("."), problem);
}

/** @param path below `config`; empty: the configuration as a whole */
export function invalidConfig(path: string, problem: string): GatewayError {
  const field = path === "" ? "config" : `config.${path}`;
  return new GatewayError("invalid_definition", `'${field}' ${problem}.`, { param: field });
}
