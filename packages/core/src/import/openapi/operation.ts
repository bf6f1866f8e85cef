/** An operation of a document in one form for all versions. References of schemas are not followed yet. */
import type { ParameterStyle } from "../../blind/definition.ts";
import type { JsonObject, JsonValue } from "../../json.ts";
import { ownMember } from "../../tools/json-schema/document.ts";
import type { Notes } from "../notes.ts";
import type { Located } from "./document.ts";

export type ParameterPlace = "path" | "query" | "header" | "cookie";

export interface ApiParameter {
  readonly name: string;
  readonly in: ParameterPlace;
  readonly required: boolean;
  readonly description: string | undefined;
  readonly deprecated: boolean;
  readonly schema: Located;
  readonly style: ParameterStyle["style"];
  readonly explode: boolean;
}

/** How one field of a form or a multipart body is written. */
export interface FieldEncoding {
  readonly contentType?: string;
  readonly style?: ParameterStyle;
}

export interface ApiBody {
  readonly mediaType: string;
  /** Absent: anything. */
  readonly schema: Located | undefined;
  readonly fields: ReadonlyMap<string, FieldEncoding>;
}

export interface ApiOperation {
  /** `GET /users/{}`: what it is found by in a later version of the document. */
  readonly key: string;
  readonly method: string;
  readonly path: string;
  readonly operationId: string | undefined;
  readonly summary: string | undefined;
  readonly description: string | undefined;
  readonly tags: readonly string[];
  readonly deprecated: boolean;
  /** Of the operation or its path; absent: those of the document. */
  readonly servers: readonly JsonValue[] | undefined;
  readonly parameters: readonly ApiParameter[];
  readonly bodies: readonly ApiBody[];
  readonly bodyRequired: boolean;
  readonly bodyDescription: string | undefined;
  /** Absent: that of the document. */
  readonly security: JsonValue | undefined;
  readonly notes: Notes;
}

/** What the versions read differently. */
export interface ReadParameters {
  readonly parameters: readonly ApiParameter[];
  readonly bodies: readonly ApiBody[];
  readonly bodyRequired: boolean;
  readonly bodyDescription?: string | undefined;
}

export interface ReadContext {
  readonly operation: JsonObject;
  /** Parameters of path and operation, references followed. */
  readonly declared: readonly Located[];
  readonly base: string;
  readonly notes: Notes;
}

/** What begins with more than this of nothing is taken for empty. */
const longestBlank = 4_096;

export function textMember(value: JsonValue | undefined, key: string): string | undefined {
  const member = ownMember(value, key);
  return typeof member === "string" && member.slice(0, longestBlank).trim() !== "" ? member : undefined;
}
