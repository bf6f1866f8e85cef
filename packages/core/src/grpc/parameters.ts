/**
 * JSON Schema of a message, as the JSON mapping of Protocol Buffers writes it: 64-bit numbers are strings or
 * whole numbers, bytes are base64, enums are names, well-known types have forms of their own. Keys that a
 * message does not have are refused when it is encoded, since both spellings of a name are taken there.
 */
import type { JsonObject, JsonValue } from "../json.ts";
import type { Descriptors, FieldDescriptor, MessageDescriptor } from "./descriptors.ts";

/** Places of a schema; a message that would need more is described as an object and no further. */
const mostPlaces = 2_000;
/** Methods of one set of descriptors that are tools. */
const mostMethods = 5_000;
/** Of the schemas of one set together, each counted with every method that has it, about as long as they are written. */
const mostCharacters = 8_000_000;
/** Of a place without its name. */
const placeCharacters = 40;

/** @throws RangeError naming the type that the descriptors do not hold */
export function toParameters(descriptors: Descriptors, input: string): JsonObject {
  return new ParameterSchemas(descriptors).of(input);
}

/** Schemas of the methods of one set, each message described once. */
export class ParameterSchemas {
  readonly #descriptors: Descriptors;
  readonly #known = new Map<string, { readonly schema: JsonObject; readonly characters: number }>();
  #methods = 0;
  #characters = 0;

  constructor(descriptors: Descriptors) {
    this.#descriptors = descriptors;
  }

  /** Asked once for each method. @throws RangeError as `toParameters`; saying of what there is too much, and how much */
  of(input: string): JsonObject {
    this.#methods += 1;
    if (this.#methods > mostMethods)
      throw new RangeError(`there are more than ${mostMethods} methods to make tools of; name fewer services`);
    const known = this.#known.get(input);
    if (known !== undefined) {
      this.#count(known.characters);
      return known.schema;
    }
    const before = this.#characters;
    const schema = toSchema(new SchemaWriter(this.#descriptors, (characters) => this.#count(characters)), input);
    this.#known.set(input, { schema, characters: this.#characters - before });
    return schema;
  }

  #count(characters: number): void {
    this.#characters += characters;
    if (this.#characters <= mostCharacters) return;
    throw new RangeError(
      `the parameters of its methods come to more than ${mostCharacters} characters as JSON Schema; leave out what is not needed`,
    );
  }
}

function toSchema(writer: SchemaWriter, input: string): JsonObject {
  const known = wellKnown.get(input);
  const schema = known ?? writer.object(input);
  const definitions = writer.definitions();
  const isObject = schema["type"] === "object";
  // Arguments are an object whatever the message is.
  return { ...(isObject ? schema : { type: "object" }), ...(definitions === undefined ? {} : { $defs: definitions }) };
}

const number: JsonObject = {
  anyOf: [{ type: "number" }, { type: "string", enum: ["NaN", "Infinity", "-Infinity"] }],
};
const int64: JsonObject = { type: ["string", "integer"], pattern: "^-?[0-9]{1,20}$" };
const uint64: JsonObject = { type: ["string", "integer"], pattern: "^[0-9]{1,20}$" };
const int32: JsonObject = { type: "integer", minimum: -2_147_483_648, maximum: 2_147_483_647 };
const uint32: JsonObject = { type: "integer", minimum: 0, maximum: 4_294_967_295 };
const bytes: JsonObject = { type: "string", contentEncoding: "base64" };

/** By the type's number in descriptor.proto. */
const scalars: ReadonlyMap<number, JsonObject> = new Map([
  [1, number],
  [2, number],
  [3, int64],
  [4, uint64],
  [5, int32],
  [6, uint64],
  [7, uint32],
  [8, { type: "boolean" }],
  [9, { type: "string" }],
  [12, bytes],
  [13, uint32],
  [15, int32],
  [16, int64],
  [17, int32],
  [18, int64],
]);
const messageTypes: ReadonlySet<number> = new Set([10, 11]);
const enumType = 14;

const wellKnown: ReadonlyMap<string, JsonObject> = new Map(
  Object.entries({
    Timestamp: { type: "string", format: "date-time" },
    Duration: { type: "string", pattern: "^-?[0-9]{1,12}([.][0-9]{1,9})?s$", description: 'Seconds, as "1.5s".' },
    FieldMask: { type: "string", description: "Names of fields, separated by commas." },
    Empty: { type: "object" },
    Struct: { type: "object" },
    Value: {},
    ListValue: { type: "array" },
    Any: { type: "object", properties: { "@type": { type: "string" } }, required: ["@type"] },
    DoubleValue: number,
    FloatValue: number,
    Int64Value: int64,
    UInt64Value: uint64,
    Int32Value: int32,
    UInt32Value: uint32,
    BoolValue: { type: "boolean" },
    StringValue: { type: "string" },
    BytesValue: bytes,
  } satisfies Record<string, JsonObject>).map(([name, schema]) => [`google.protobuf.${name}`, schema]),
);

const wrapper = /^google[.]protobuf[.](?:Double|Float|U?Int(?:32|64)|Bool|String|Bytes)Value$/;

/** Wrappers are there to be null, as fields; lists and maps hold no null. */
function orNull(schema: JsonObject): JsonObject {
  const { type, anyOf } = schema;
  if (Array.isArray(anyOf)) return { anyOf: [...anyOf, { type: "null" }] };
  return { ...schema, type: [...(Array.isArray(type) ? type : [type ?? "object"]), "null"] };
}

function missing(name: string): RangeError {
  return new RangeError(`the type '${name}' is missing; make the set with protoc --include_imports`);
}

class SchemaWriter {
  readonly #descriptors: Descriptors;
  readonly #definitions = new Map<string, JsonObject>();
  readonly #recursive = new Map<string, boolean>();
  readonly #count: (characters: number) => void;
  #places = 0;

  /** @param count is told of all that is written, before it is, and may throw */
  constructor(descriptors: Descriptors, count: (characters: number) => void) {
    this.#descriptors = descriptors;
    this.#count = count;
  }

  definitions(): JsonObject | undefined {
    return this.#definitions.size === 0 ? undefined : Object.fromEntries(this.#definitions);
  }

  object(name: string): JsonObject {
    const message = this.#messageOf(name);
    const properties: Record<string, JsonValue> = {};
    for (const field of message.fields) {
      this.#count(placeCharacters + field.jsonName.length + field.comment.length);
      const schema = this.#field(field);
      properties[field.jsonName] = field.comment === "" ? schema : { ...schema, description: field.comment };
    }
    const required = message.fields.filter(({ isRequired }) => isRequired).map(({ jsonName }) => jsonName);
    return { type: "object", properties, ...(required.length === 0 ? {} : { required }) };
  }

  #field(field: FieldDescriptor): JsonObject {
    const entry = messageTypes.has(field.type) ? this.#descriptors.messages.get(field.typeName) : undefined;
    if (entry?.isMapEntry === true) {
      const value = entry.fields.find(({ number: position }) => position === 2);
      return { type: "object", ...(value === undefined ? {} : { additionalProperties: this.#single(value) }) };
    }
    const single = this.#single(field);
    if (field.isRepeated) return { type: "array", items: single };
    return wrapper.test(field.typeName) ? orNull(single) : single;
  }

  #single({ type, typeName }: FieldDescriptor): JsonObject {
    this.#places += 1;
    const scalar = scalars.get(type);
    if (scalar !== undefined) return scalar;
    if (type === enumType) return this.#enumOf(typeName);
    const known = wellKnown.get(typeName);
    if (known !== undefined) return known;
    if (this.#places > mostPlaces) return { type: "object" };
    if (!this.#isRecursive(typeName)) return this.object(typeName);
    if (!this.#definitions.has(typeName)) {
      // There before it is written, for those within it that refer to it.
      this.#definitions.set(typeName, {});
      this.#definitions.set(typeName, this.object(typeName));
    }
    return { $ref: `#/$defs/${typeName}` };
  }

  #enumOf(name: string): JsonObject {
    if (name === "google.protobuf.NullValue") return { type: "null" };
    const values = this.#descriptors.enums.get(name);
    if (values === undefined) throw missing(name);
    this.#places += values.length;
    for (const value of values) this.#count(value.length);
    return { type: "string", enum: [...values] };
  }

  #messageOf(name: string): MessageDescriptor {
    const message = this.#descriptors.messages.get(name);
    if (message === undefined) throw missing(name);
    return message;
  }

  #isRecursive(name: string): boolean {
    const known = this.#recursive.get(name);
    if (known !== undefined) return known;
    const seen = new Set<string>();
    const waiting = [name];
    for (let next = waiting.pop(); next !== undefined; next = waiting.pop()) {
      for (const { type, typeName } of this.#descriptors.messages.get(next)?.fields ?? []) {
        if (!messageTypes.has(type) || seen.has(typeName)) continue;
        seen.add(typeName);
        waiting.push(typeName);
      }
    }
    const isRecursive = seen.has(name);
    this.#recursive.set(name, isRecursive);
    return isRecursive;
  }
}
