/** A list of JSON definitions: each is a tool as it stands, found again by its name. */
import { isJsonObject } from "../json.ts";
import { GatewayError } from "../errors/gateway-error.ts";
import { noAuth, type Candidate, type ReadSource } from "./candidate.ts";

/** @throws GatewayError `invalid_definition` naming the place in the list */
export function readDefinitions(list: readonly unknown[], documentId: string | undefined): ReadSource {
  const candidates = list.map((definition, index): Candidate => {
    const name = isJsonObject(definition) ? definition["name"] : undefined;
    if (!isJsonObject(definition) || typeof name !== "string") {
      throw invalid(
        `definitions.${index}${isJsonObject(definition) ? ".name" : ""}`,
        "must be a definition with a name",
      );
    }
    return { key: name, label: name, wish: name, definition, auth: noAuth, warnings: [] };
  });
  const seen = new Set<string>();
  for (const [index, { key }] of candidates.entries()) {
    if (seen.has(key)) throw invalid(`definitions.${index}.name`, `'${key}' is the name of an earlier one already`);
    seen.add(key);
  }
  return {
    document: { id: documentId ?? "", title: null, version: null, baseUrl: null, origin: null, otherServers: [] },
    candidates,
    skipped: [],
    present: seen,
    warnings: [],
  };
}

function invalid(param: string, problem: string): GatewayError {
  return new GatewayError("invalid_definition", `'${param}' ${problem}.`, { param });
}
