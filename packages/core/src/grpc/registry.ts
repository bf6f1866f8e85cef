/**
 * Files of descriptors as the library wants them that encodes and decodes (SVC-1): whoever makes a set leaves out what
 * compilers write, or the files that compilers bring along.
 */
import { create, createFileRegistry, createRegistry, fromBinary, type FileRegistry } from "@bufbuild/protobuf";
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
  type EnumDescriptorProto,
  type FieldDescriptorProto,
  type FileDescriptorProto,
} from "@bufbuild/protobuf/wkt";
import { withDelivery } from "../errors/delivery.ts";
import { GatewayError } from "../errors/gateway-error.ts";
import { toJsonName, type Descriptors } from "./descriptors.ts";
import { MessageTooLarge } from "./frames.ts";
import { JsonSize } from "./json-size.ts";
import { TypeNames } from "./type-names.ts";

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

/** @throws GatewayError `invalid_definition` saying what is wrong with the descriptors */
export function toRegistry({ files }: Pick<Descriptors, "files">): FileRegistry {
  try {
    const size = new JsonSize({ registry: createRegistry(FileDescriptorProtoSchema), emitDefaults: false });
    let left = largestFiles;
    const given = files.map(({ bytes }) => {
      const kept = withoutSourceInfo(bytes);
      left -= size.check(FileDescriptorProtoSchema, kept, left);
      return readFile(kept);
    });
    completeReferences(given);
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
  return fromBinary(FileDescriptorProtoSchema, bytes, { readUnknownFields: false });
}

/**
 * What compilers write and whoever serves descriptors without a compiler's help leaves out: names of fields in JSON,
 * whole names of types, and which files those are in.
 */
function completeReferences(given: readonly FileDescriptorProto[]): void {
  const fileOf = new Map<string, string>();
  for (const { name, package: scope, messageType, enumType } of [...wellKnownFiles.values(), ...given])
    addTypes({ scope, messageType, enumType }, (type) => fileOf.set(type, name));
  const types = new TypeNames((name) => fileOf.has(name));
  for (const file of given) {
    const imports = new Set([file.name, ...file.dependency]);
    const whole = (name: string, scope: string): string => {
      if (name === "") return name;
      const type = types.whole(name, scope);
      const from = fileOf.get(type);
      if (from !== undefined && !imports.has(from)) file.dependency.push(from);
      if (from !== undefined) imports.add(from);
      return `.${type}`;
    };
    const { package: scope, extension, messageType, service } = file;
    completeMessages({ scope, extension, messageType }, whole);
    for (const { method } of service) {
      for (const each of method) {
        each.inputType = whole(each.inputType, scope);
        each.outputType = whole(each.outputType, scope);
      }
    }
  }
}

interface Types {
  readonly scope: string;
  readonly messageType: readonly DescriptorProto[];
  readonly enumType: readonly EnumDescriptorProto[];
}

function addTypes({ scope, messageType, enumType }: Types, add: (wholeName: string) => void): void {
  const within = scope === "" ? "" : `${scope}.`;
  for (const { name } of enumType) add(within + name);
  for (const { name, nestedType, enumType: inner } of messageType) {
    add(within + name);
    addTypes({ scope: within + name, messageType: nestedType, enumType: inner }, add);
  }
}

interface Fields {
  readonly scope: string;
  readonly extension: readonly FieldDescriptorProto[];
  readonly messageType: readonly DescriptorProto[];
}

function completeMessages(
  { scope, extension, messageType }: Fields,
  whole: (name: string, scope: string) => string,
): void {
  for (const field of extension) completeField(field, (name) => whole(name, scope));
  for (const { name, field, extension: inner, nestedType } of messageType) {
    const fullName = scope === "" ? name : `${scope}.${name}`;
    for (const each of field) completeField(each, (type) => whole(type, fullName));
    completeMessages({ scope: fullName, extension: inner, messageType: nestedType }, whole);
  }
}

function completeField(field: FieldDescriptorProto, whole: (name: string) => string): void {
  if (field.jsonName === "") field.jsonName = toJsonName(field.name);
  field.typeName = whole(field.typeName);
  field.extendee = whole(field.extendee);
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

export function badDescriptors(problem: string, cause?: unknown): GatewayError {
  return withDelivery(
    new GatewayError(
      "invalid_definition",
      `The descriptors of the service cannot be used: ${problem}. Give it a set that 'protoc --include_imports --descriptor_set_out' has made.`,
      { param: "config.grpc.descriptors", ...(cause === undefined ? {} : { cause }) },
    ),
    "not_sent",
  );
}

export function reasonOf(error: unknown): string {
  return error instanceof Error ? error.message.replaceAll(/\s+/g, " ").slice(0, 500) : "unknown";
}
