/**
 * From parameters and fields of a body to the flat arguments of a tool. Two of one name get two names:
 * the path keeps its own, the others say where they are from (`query_id`, `body_id`).
 */
import type { Execution, ParameterStyle } from "../../blind/definition.ts";
import type { JsonObject, JsonValue } from "../../json.ts";
import { toArgumentName } from "../names.ts";
import type { ParameterPlace } from "./operation.ts";

export interface Argument {
  readonly place: ParameterPlace | "body";
  /** What the back end calls it. */
  readonly wireName: string;
  readonly schema: JsonObject;
  readonly required: boolean;
  readonly style?: ParameterStyle | undefined;
  readonly partType?: string | undefined;
  /** It is the whole body. */
  readonly isBody?: boolean;
}

export interface NamedArgument extends Argument {
  readonly name: string;
}

const order: readonly Argument["place"][] = ["path", "query", "header", "cookie", "body"];

export function nameArguments(list: readonly Argument[]): readonly NamedArgument[] {
  const sorted = order.flatMap((place) => list.filter((argument) => argument.place === place));
  const taken = new Set<string>();
  const nextNumbers = new Map<string, number>();
  return sorted.map((argument) => {
    const wish = toArgumentName(argument.wireName);
    const longer = `${argument.place === "body" && argument.isBody === true ? "request" : argument.place}_${wish}`;
    let name = taken.has(wish) ? longer : wish;
    for (let number = nextNumbers.get(longer) ?? 2; taken.has(name); number += 1) {
      name = `${longer}_${number}`;
      nextNumbers.set(longer, number + 1);
    }
    taken.add(name);
    return { ...argument, name };
  });
}

type ExecutionParts = Pick<
  Execution,
  "param_placement" | "param_overrides" | "param_names" | "param_styles" | "part_types" | "body_param"
>;

/**
 * The part of `execution` that says where each argument goes.
 * @param isFlatBody the body has fields, if only such as credentials fill
 */
export function placeArguments(
  list: readonly NamedArgument[],
  isFlatBody = list.some(({ place, isBody }) => place === "body" && isBody !== true),
): ExecutionParts {
  const rest = isFlatBody ? "body" : "query";
  const overrides: [string, Argument["place"]][] = [];
  const names: [string, string][] = [];
  const styles: [string, ParameterStyle][] = [];
  const types: [string, string][] = [];
  let bodyParam: string | undefined;
  for (const { name, place, wireName, style, partType, isBody } of list) {
    if (isBody === true) {
      bodyParam = name;
      continue;
    }
    if (place !== "path" && place !== rest) overrides.push([name, place]);
    // A placeholder bears the argument's name; `matrix` writes the back end's.
    if (name !== wireName && (place !== "path" || style?.style === "matrix")) names.push([name, wireName]);
    if (style !== undefined) styles.push([name, style]);
    if (partType !== undefined) types.push([name, partType]);
  }
  return {
    param_placement: rest,
    ...filled("param_overrides", overrides),
    ...filled("param_names", names),
    ...filled("param_styles", styles),
    ...filled("part_types", types),
    ...(bodyParam === undefined ? {} : { body_param: bodyParam }),
  };
}

function filled<Key extends string, Value>(
  key: Key,
  entries: readonly (readonly [string, Value])[],
): { [K in Key]?: Record<string, Value> } {
  return entries.length === 0 ? {} : ({ [key]: Object.fromEntries(entries) } as { [K in Key]: Record<string, Value> });
}

/** The schema of all of them. @param additional what the body says about other fields */
export function toParameters(list: readonly NamedArgument[], additional: JsonValue | undefined): JsonObject {
  const required = list.filter((argument) => argument.required).map(({ name }) => name);
  return {
    type: "object",
    properties: Object.fromEntries(list.map(({ name, schema }) => [name, schema])),
    ...(required.length === 0 ? {} : { required }),
    ...(additional === undefined ? {} : { additionalProperties: additional }),
  };
}
