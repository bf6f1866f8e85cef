/**
 * Messages as JSON and as bytes (SVC-1): the JSON mapping of Protocol Buffers, in both directions, by what a
 * FileDescriptorSet says of the types. Loaded at the first gRPC call, with the library it brings.
 */
import {
  createFileRegistry,
  create,
  fromBinary,
  fromJson,
  toBinary,
  toJsonString,
  type DescMessage,
  type FileRegistry,
} from "@bufbuild/protobuf";
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
  type FileDescriptorProto,
} from "@bufbuild/protobuf/wkt";
import { GatewayError } from "../errors/gateway-error.ts";
import type { JsonObject } from "../json.ts";
import { withDelivery } from "../errors/delivery.ts";
import type { Descriptors, MethodDescriptor } from "./descriptors.ts";

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
  /** JSON text. @throws GatewayError `tool_failed`, answered, where the bytes are no such message */
  decode(method: TypedMethod, bytes: Uint8Array): string;
}

export interface CodecOptions {
  /** Write fields that are not set, too, with their defaults. */
  readonly emitDefaults: boolean;
}

/** @throws GatewayError `invalid_definition` saying what is wrong with the descriptors */
export function createCodec(descriptors: Pick<Descriptors, "files">, { emitDefaults }: CodecOptions): Codec {
  const registry = toRegistry(descriptors);
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
    decode({ output }, bytes) {
      const schema = messageOf(registry, output);
      try {
        return toJsonString(schema, fromBinary(schema, bytes), { registry, alwaysEmitImplicit: emitDefaults });
      } catch (error) {
        const text = `The answer is no message '${output}' (${reasonOf(error)}); its descriptors may be out of date.`;
        throw withDelivery(new GatewayError("tool_failed", text, { cause: error }), "answered");
      }
    },
  };
}

function toRegistry({ files }: Pick<Descriptors, "files">): FileRegistry {
  try {
    const given = files.map(({ bytes }) => fromBinary(FileDescriptorProtoSchema, bytes));
    return createFileRegistry(create(FileDescriptorSetSchema, { file: inOrder(given) }));
  } catch (error) {
    if (error instanceof GatewayError) throw error;
    throw badDescriptors(reasonOf(error), error);
  }
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
