/** The operations of a document, with every reference but those of schemas followed. */
import { isJsonObject, type JsonObject, type JsonValue } from "../../json.ts";
import { ownMember } from "../../tools/json-schema/document.ts";
import { Notes } from "../notes.ts";
import type { ImportWork } from "../work.ts";
import type { ApiDocument, Located } from "./document.ts";
import { readParameters } from "./openapi3.ts";
import { textMember, type ApiOperation } from "./operation.ts";
import { readSwaggerParameters } from "./swagger2.ts";

const httpMethods = ["get", "put", "post", "delete", "options", "head", "patch", "trace"] as const;

export interface ReadingOptions {
  /** Told of paths whose reference leads nowhere that is known. */
  readonly onGap: (path: string) => void;
  readonly work: ImportWork;
}

/** @throws GatewayError `invalid_request` when the work of a whole import is used up */
export function* readOperations(document: ApiDocument, { onGap, work }: ReadingOptions): Generator<ApiOperation> {
  const paths = ownMember(document.root, "paths");
  if (!isJsonObject(paths)) return;
  for (const [path, pathItem] of Object.entries(paths)) {
    if (path.startsWith("x-")) continue;
    const item = document.follow({ value: pathItem, base: "" });
    if (item === undefined) onGap(path);
    if (!isJsonObject(item?.value)) continue;
    for (const method of httpMethods) {
      const operation = ownMember(item.value, method);
      if (!isJsonObject(operation)) continue;
      work.spend(countRead(item.value, operation));
      work.look(countLookedAt(document, operation));
      yield readOperation(document, { path, method, operation, item: item.value, base: item.base });
    }
  }
}

/** Parameters and servers are read once more for each operation of a path, which may be that of many. */
function countRead(item: JsonObject, operation: JsonObject): number {
  return [item, operation]
    .flatMap((owner) => [ownMember(owner, "parameters"), ownMember(owner, "servers")])
    .reduce<number>((sum, list) => sum + lengthOf(list), 0);
}

function countLookedAt(document: ApiDocument, operation: JsonObject): number {
  return [document.root, operation]
    .flatMap((owner) => [ownMember(owner, "security"), ownMember(owner, "consumes"), ownMember(operation, "tags")])
    .reduce<number>((sum, list) => sum + lengthOf(list), 0);
}

function lengthOf(list: JsonValue | undefined): number {
  return Array.isArray(list) ? list.length : 0;
}

/** The names of placeholders are labels: an operation is the same under others. */
function operationKey(method: string, path: string): string {
  return `${method.toUpperCase()} ${path.replaceAll(/\{[^{}]*\}/g, "{}")}`;
}

/** Keys of whatever operations a path may have. */
export function keysOfPath(path: string): readonly string[] {
  return httpMethods.map((method) => operationKey(method, path));
}

interface OperationPlace {
  readonly path: string;
  readonly method: (typeof httpMethods)[number];
  readonly operation: JsonObject;
  readonly item: JsonObject;
  readonly base: string;
}

function readOperation(document: ApiDocument, place: OperationPlace): ApiOperation {
  const { path, method, operation, item, base } = place;
  const notes = new Notes();
  const declared = mergeParameters(document, { item, operation, base, notes });
  const read = document.version === "2.0" ? readSwaggerParameters : readParameters;
  const tags = ownMember(operation, "tags");
  const servers = ownMember(operation, "servers") ?? ownMember(item, "servers");
  return {
    key: operationKey(method, path),
    method: method.toUpperCase(),
    path,
    operationId: textMember(operation, "operationId"),
    summary: textMember(operation, "summary") ?? textMember(item, "summary"),
    description: textMember(operation, "description") ?? textMember(item, "description"),
    tags: Array.isArray(tags) ? tags.filter((tag) => typeof tag === "string") : [],
    deprecated: ownMember(operation, "deprecated") === true,
    servers: Array.isArray(servers) && servers.length > 0 ? servers : undefined,
    bodyDescription: undefined,
    ...read(document, { operation, declared, base, notes }),
    security: ownMember(operation, "security"),
    notes,
  };
}

interface ParameterSources {
  readonly item: JsonObject;
  readonly operation: JsonObject;
  readonly base: string;
  readonly notes: Notes;
}

/** Those of the operation replace those of its path that have the same name and place. */
function mergeParameters(
  document: ApiDocument,
  { item, operation, base, notes }: ParameterSources,
): readonly Located[] {
  const found = new Map<string, Located>();
  for (const owner of [item, operation]) {
    const list = ownMember(owner, "parameters");
    for (const value of Array.isArray(list) ? list : []) {
      const parameter = document.follow({ value, base });
      const name = textMember(parameter?.value, "name");
      if (parameter === undefined || name === undefined) {
        notes.add("A parameter without a name, or whose reference leads nowhere that is known, is left out.");
        continue;
      }
      found.set(`${textMember(parameter.value, "in") ?? ""} ${name}`, parameter);
    }
  }
  return [...found.values()];
}
