/** What a scheme's schema says of a configuration, as the error that names the field. */
import type * as z from "zod";
import { GatewayError } from "../errors/gateway-error.ts";
import { listedProblems, schemaProblems, type SchemaProblem } from "../errors/schema-problems.ts";

export interface ConfigProblem {
  readonly path: SchemaProblem["path"];
  readonly problem: string;
}

export function problemsOf(error: z.core.$ZodError): readonly ConfigProblem[] {
  return schemaProblems(error).map(({ path, kind, says }) => ({
    path,
    problem: kind === "unknown" ? `${says}; ${whereFieldsStand}` : says,
  }));
}

const whereFieldsStand = "GET /v1/tool-services/schemes lists those of each scheme";

/** For a schema that reads part of a configuration in a `transform`: whatever is wrong with that part. */
export function addProblems(check: z.RefinementCtx, error: z.core.$ZodError, part: string): void {
  for (const { path, problem } of problemsOf(error)) {
    check.addIssue({ code: "custom", message: problem, path: [part, ...path] });
  }
}

/** The error's `param` is `config.…`, as the field stands in the request. */
export function toInvalidConfig(error: z.ZodError): GatewayError {
  const told = problemsOf(error).map(({ path, problem }) => ({ param: fieldOf(path.join(".")), message: problem }));
  const [{ param, message } = { param: "config", message: "is not valid" }] = told;
  return new GatewayError("invalid_definition", `'${param}' ${message}.`, { param, ...listedProblems(told) });
}

/** @param path below `config`; empty: the configuration as a whole */
export function invalidConfig(path: string, problem: string): GatewayError {
  const field = fieldOf(path);
  return new GatewayError("invalid_definition", `'${field}' ${problem}.`, { param: field });
}

function fieldOf(path: string): string {
  return path === "" ? "config" : `config.${path}`;
}
