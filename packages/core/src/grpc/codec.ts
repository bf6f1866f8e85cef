/**
 * Messages as JSON and as bytes (SVC-1): the JSON mapping of Protocol Buffers, in both directions, by what a
 * FileDescriptorSet says of the types. Loaded at the first gRPC call, with the library it brings.
 */
import {
  createFileRegistry,
  createRegistry,
  create,
  fromBinary,
  fromJson,
  toBinary,
  toJsonString,
  type DescMessage,
  type FileRegistry,
} from "@bufbuild/protobuf";
import { BinaryReader } from "@bufbuild/protobuf/wire";
import {
  file_google_protobuf_any,
  file_google_protobuf_api,
  file_google_protobuf_descriptor,
  file_google_protobuf_duration,
  file_google_protobuf_empty,
  file_google_protobuf_field_mask,
  file_google_protobuf_source_context,
  file_google_protobuf_struct,
  file_google_protobuf_timestamp,
  file_google_protobuf_type,
  file_google_protobuf_wrappers,
  FileDescriptorProtoSchema,
  FileDescriptorSetSchema,
  type DescriptorProto,
  type FieldDescriptorProto,
  type FileDescriptorProto,
} from "@bufbuild/protobuf/wkt";
import { GatewayError } from "../errors/gateway-error.ts";
import type { JsonObject } from "../json.ts";
import { withDelivery } from "../errors/delivery.ts";
import { toJsonName, type Descriptors, type MethodDescriptor } from "./descriptors.ts";
import { MessageTooLarge } from "./frames.ts";
import { JsonSize } from "./json-size.ts";
import { describeUnknown } from "./unknown-any.ts";

/** Files that compilers bring along; many sets leave them out. */
const wellKnownFiles: ReadonlyMap<string, FileDescriptorProto> = new Map(
  [
    file_google_protobuf_any,
    file_google_protobuf_api,
    file_google_protobuf_descriptor,
    file_google_protobuf_duration,
    file_google_protobuf_empty,
    file_google_protobuf_field_mask,
    file_google_protobuf_source_context,
    file_google_protobuf_struct,
    file_google_protobuf_timestamp,
    file_google_protobuf_type,
    file_google_protobuf_wrappers,
  ].map(({ proto }) => [proto.name, proto]),
);

export type TypedMethod = Pick<MethodDescriptor, "input" | "output">;

export interface Codec {
  /** @throws GatewayError `invalid_arguments` naming the field, not sent */
  encode(method: TypedMethod, args: JsonObject): Uint8Array;
  /**
   * JSON text. @throws GatewayError `tool_failed`, answered, where the bytes are no such message
   * @throws MessageTooLarge where it would have more than `most` characters
   */
  decode(method: TypedMethod, bytes: Uint8Array, most?: number): string;
}

export interface CodecOptions {
  /** Write fields that are not set, too, with their defaults. */
  readonly emitDefaults: boolean;
}

/** @throws GatewayError `invalid_definition` saying what is wrong with the descriptors */
export function createCodec(descriptors: Pick<Descriptors, "files">, { emitDefaults }: CodecOptions): Codec {
  const registry = toRegistry(descriptors);
  const size = new JsonSize({ registry, emitDefaults });
  return {
    encode({ input }, args) {
      const schema = messageOf(registry, input);
      try {
        return toBinary(schema, fromJson(schema, args, { registry }));
      } catch (error) {
        throw withDelivery(
          new GatewayError("invalid_arguments", `The arguments are no message '${input}': ${reasonOf(error)}.`, {
            cause: error,
          }),
          "not_sent",
        );
      }
    },
    decode({ output }, bytes, most = Number.POSITIVE_INFINITY) {
      const schema = messageOf(registry, output);
      const message = read(output, () => {
        size.check(schema, bytes, most);
        return fromBinary(schema, bytes);
      });
      const text = write(output, () => {
        const options = { registry, alwaysEmitImplicit: emitDefaults };
        try {
          return toJsonString(schema, message, options);
        } catch (error) {
          const known = describeUnknown(schema, message, registry);
          if (known === undefined) throw error;
          return toJsonString(schema, message, { ...options, registry: known });
        }
      });
      if (text.length > most) throw new MessageTooLarge();
      return text;
    },
  };
}

/** @throws GatewayError `tool_failed`, answered */
function read<Result>(output: string, work: () => Result): Result {
  try {
    return work();
  } catch (error) {
    if (error instanceof MessageTooLarge) throw error;
    const text = `The answer is no message '${output}' (${reasonOf(error)}); its descriptors may be out of date.`;
    throw withDelivery(new GatewayError("tool_failed", text, { cause: error }), "answered");
  }
}

/** What JSON has no place for, such as times before the year 1. @throws GatewayError `tool_failed`, answered */
function write(output: string, work: () => string): string {
  try {
    return work();
  } catch (error) {
    const text = `The server answered OK, but its answer '${output}' cannot be written as JSON: ${reasonOf(error)}.`;
    throw withDelivery(new GatewayError("tool_failed", text, { cause: error }), "answered");
  }
}

function toRegistry({ files }: Pick<Descriptors, "files">): FileRegistry {
  try {
    const size = new JsonSize({ registry: createRegistry(FileDescriptorProtoSchema), emitDefaults: false });
    let left = largestFiles;
    const given = files.map(({ bytes }) => {
      const kept = withoutSourceInfo(bytes);
      left -= size.check(FileDescriptorProtoSchema, kept, left);
      return readFile(kept);
    });
    return createFileRegistry(create(FileDescriptorSetSchema, { file: inOrder(given) }));
  } catch (error) {
    if (error instanceof GatewayError) throw error;
    if (error instanceof MessageTooLarge)
      throw badDescriptors("they are too large, even without their comments", error);
    throw badDescriptors(reasonOf(error), error);
  }
}

/** Characters that all files would have as JSON, by which their size in memory is known. */
const largestFiles = 32_000_000;
/** Comments and places in the source are a large part of a file, and no message needs them. */
const sourceInfo = 9;

function withoutSourceInfo(bytes: Uint8Array): Uint8Array {
  const kept = Buffer.allocUnsafe(bytes.byteLength);
  let size = 0;
  const reader = new BinaryReader(bytes);
  while (reader.pos < reader.len) {
    const start = reader.pos;
    const [number, wire] = reader.tag();
    reader.skip(wire, number);
    if (number === sourceInfo) continue;
    kept.set(bytes.subarray(start, reader.pos), size);
    size += reader.pos - start;
  }
  return kept.subarray(0, size);
}

/** Options that somebody else has defined are left out. */
function readFile(bytes: Uint8Array): FileDescriptorProto {
  const file = fromBinary(FileDescriptorProtoSchema, bytes, { readUnknownFields: false });
  for (const field of file.extension) nameInJson(field);
  for (const message of file.messageType) nameFieldsInJson(message);
  return file;
}

/** Whoever serves descriptors without a compiler's help leaves these names out, and they are taken as they are. */
function nameInJson(field: FieldDescriptorProto): void {
  if (field.jsonName === "") field.jsonName = toJsonName(field.name);
}

function nameFieldsInJson({ field, extension, nestedType }: DescriptorProto): void {
  for (const each of [...field, ...extension]) nameInJson(each);
  for (const message of nestedType) nameFieldsInJson(message);
}

/** Files after those they import. */
function inOrder(given: readonly FileDescriptorProto[]): FileDescriptorProto[] {
  const byName = new Map([...wellKnownFiles, ...given.map((file) => [file.name, file] as const)]);
  const ordered = new Map<string, FileDescriptorProto>();
  const open = new Set<string>();
  const add = (name: string, importedBy: string): void => {
    if (ordered.has(name)) return;
    const file = byName.get(name);
    if (file === undefined) throw badDescriptors(`'${importedBy}' imports '${name}', which is not among them`);
    if (open.has(name)) throw badDescriptors(`'${name}' imports itself`);
    open.add(name);
    for (const dependency of file.dependency) add(dependency, name);
    open.delete(name);
    ordered.set(name, file);
  };
  for (const { name } of given) add(name, name);
  return [...ordered.values()];
}

function messageOf(registry: FileRegistry, name: string): DescMessage {
  const message = registry.getMessage(name);
  if (message === undefined) throw badDescriptors(`they hold no message '${name}'`);
  return message;
}

function badDescriptors(problem: string, cause?: unknown): GatewayError {
  return withDelivery(
    new GatewayError(
      "invalid_definition",
      `The descriptors of the service cannot be used: ${problem}. Make the set with 'protoc --include_imports --descriptor_set_out'.`,
      { param: "config.grpc.descriptors", ...(cause === undefined ? {} : { cause }) },
    ),
    "not_sent",
  );
}

function reasonOf(error: unknown): string {
  return error instanceof Error ? error.message.replaceAll(/\s+/g, " ").slice(0, 500) : "unknown";
}
