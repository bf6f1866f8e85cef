/**
 * What a FileDescriptorSet says of services, messages and enums (SVC-1): enough to list tools with their
 * parameters, without loading the library that encodes and decodes. Comments become descriptions where the
 * set was made with them (`protoc --include_imports --include_source_info --descriptor_set_out=…`).
 */
import { readFields, toText, type WireField } from "./wire.ts";

export interface FieldDescriptor {
  readonly name: string;
  readonly jsonName: string;
  readonly number: number;
  /** Number of the type in descriptor.proto. */
  readonly type: number;
  /** Of messages and enums, without the leading dot. */
  readonly typeName: string;
  readonly isRepeated: boolean;
  readonly isRequired: boolean;
  readonly comment: string;
}

export interface MessageDescriptor {
  readonly fullName: string;
  readonly fields: readonly FieldDescriptor[];
  readonly isMapEntry: boolean;
}

export interface MethodDescriptor {
  /** `package.Service/Method`. */
  readonly path: string;
  readonly service: string;
  readonly name: string;
  readonly input: string;
  readonly output: string;
  readonly isClientStreaming: boolean;
  readonly isServerStreaming: boolean;
  readonly idempotency: "unknown" | "no_side_effects" | "idempotent";
  readonly comment: string;
}

export interface FileDescriptor {
  readonly name: string;
  readonly imports: readonly string[];
  /** As it stands in the set. */
  readonly bytes: Uint8Array;
}

export interface Descriptors {
  readonly files: readonly FileDescriptor[];
  readonly messages: ReadonlyMap<string, MessageDescriptor>;
  /** Names of values by the enum's. */
  readonly enums: ReadonlyMap<string, readonly string[]>;
  /** By path. */
  readonly methods: ReadonlyMap<string, MethodDescriptor>;
}

interface Collected {
  readonly messages: Map<string, MessageDescriptor>;
  readonly enums: Map<string, readonly string[]>;
  readonly methods: Map<string, MethodDescriptor>;
}

/** Messages within messages; deeper is nothing that a compiler made. */
const deepest = 64;

/** @throws RangeError, TypeError where the bytes are no FileDescriptorSet */
export function readDescriptorSet(set: Uint8Array): Descriptors {
  return readFiles(all(set, 1));
}

/** @param files serialised FileDescriptorProtos; those of one name count once */
export function readFiles(files: readonly Uint8Array[]): Descriptors {
  const collected: Collected = { messages: new Map(), enums: new Map(), methods: new Map() };
  const byName = new Map<string, FileDescriptor>();
  for (const bytes of files) {
    const name = text(bytes, 1);
    if (name === "" || byName.has(name)) continue;
    byName.set(name, { name, imports: all(bytes, 3).map(toText), bytes });
    readFile(bytes, collected);
  }
  return { files: [...byName.values()], ...collected };
}

/** Imports that are not among the files. */
export function missingImports({ files }: Pick<Descriptors, "files">): readonly string[] {
  const known = new Set(files.map(({ name }) => name));
  return [...new Set(files.flatMap(({ imports }) => imports))].filter((name) => !known.has(name));
}

interface Place {
  /** Package or message, with a dot at its end where there is one. */
  readonly scope: string;
  /** Path of source locations. */
  readonly path: string;
  readonly comments: ReadonlyMap<string, string>;
}

function readFile(file: Uint8Array, collected: Collected): void {
  const name = text(file, 2);
  const comments = readComments(all(file, 9)[0]);
  const scope = name === "" ? "" : `${name}.`;
  all(file, 4).forEach((message, index) => readMessage(message, { scope, path: `4.${index}`, comments }, collected));
  for (const type of all(file, 5)) readEnum(type, scope, collected);
  all(file, 6).forEach((service, index) => readService(service, { scope, path: `6.${index}`, comments }, collected));
}

function readMessage(bytes: Uint8Array, { scope, path, comments }: Place, collected: Collected, depth = 0): void {
  if (depth > deepest) throw new RangeError("messages are nested too deep");
  const fullName = scope + text(bytes, 1);
  const options = all(bytes, 7)[0];
  collected.messages.set(fullName, {
    fullName,
    fields: all(bytes, 2).map((field, index) => readField(field, comments.get(`${path}.2.${index}`) ?? "")),
    isMapEntry: options !== undefined && number(options, 7) === 1,
  });
  for (const [index, inner] of all(bytes, 3).entries()) {
    readMessage(inner, { scope: `${fullName}.`, path: `${path}.3.${index}`, comments }, collected, depth + 1);
  }
  for (const type of all(bytes, 4)) readEnum(type, `${fullName}.`, collected);
}

function readField(bytes: Uint8Array, comment: string): FieldDescriptor {
  const label = number(bytes, 4);
  const name = text(bytes, 1);
  const jsonName = text(bytes, 10);
  return {
    name,
    jsonName: jsonName === "" ? toJsonName(name) : jsonName,
    number: number(bytes, 3),
    type: number(bytes, 5),
    typeName: withoutDot(text(bytes, 6)),
    isRepeated: label === 3,
    isRequired: label === 2,
    comment,
  };
}

function readEnum(bytes: Uint8Array, scope: string, { enums }: Collected): void {
  enums.set(
    scope + text(bytes, 1),
    all(bytes, 2).map((value) => text(value, 1)),
  );
}

const idempotencies = ["unknown", "no_side_effects", "idempotent"] as const;

function readService(bytes: Uint8Array, { scope, path, comments }: Place, { methods }: Collected): void {
  const service = scope + text(bytes, 1);
  for (const [index, method] of all(bytes, 2).entries()) {
    const name = text(method, 1);
    const options = all(method, 4)[0];
    const level = options === undefined ? 0 : number(options, 34);
    methods.set(`${service}/${name}`, {
      path: `${service}/${name}`,
      service,
      name,
      input: withoutDot(text(method, 2)),
      output: withoutDot(text(method, 3)),
      isClientStreaming: number(method, 5) === 1,
      isServerStreaming: number(method, 6) === 1,
      idempotency: idempotencies[level] ?? "unknown",
      comment: comments.get(`${path}.2.${index}`) ?? "",
    });
  }
}

/** Comments before a declaration, or else behind it, by the path of the declaration. */
function readComments(info: Uint8Array | undefined): ReadonlyMap<string, string> {
  const comments = new Map<string, string>();
  if (info === undefined) return comments;
  for (const location of all(info, 1)) {
    const comment = (text(location, 3) || text(location, 4)).replaceAll(/\s+/g, " ").trim();
    if (comment !== "") comments.set(all(location, 1).flatMap(packed).join("."), comment.slice(0, 2_000));
  }
  return comments;
}

/** Numbers of a packed field; small ones, as paths have. */
function packed(bytes: Uint8Array): readonly number[] {
  const numbers: number[] = [];
  let value = 0;
  let shift = 0;
  for (const byte of bytes) {
    value += (byte & 0x7f) * 2 ** shift;
    shift += 7;
    if (byte >= 0x80) continue;
    numbers.push(value);
    value = 0;
    shift = 0;
  }
  return numbers;
}

function fields(bytes: Uint8Array, wanted: number): readonly WireField[] {
  return [...readFields(bytes)].filter((field) => field.number === wanted);
}

function all(bytes: Uint8Array, wanted: number): readonly Uint8Array[] {
  return fields(bytes, wanted).map((field) => field.bytes);
}

function text(bytes: Uint8Array, wanted: number): string {
  const last = all(bytes, wanted).at(-1);
  return last === undefined ? "" : toText(last);
}

function number(bytes: Uint8Array, wanted: number): number {
  return fields(bytes, wanted).at(-1)?.value ?? 0;
}

function withoutDot(name: string): string {
  return name.startsWith(".") ? name.slice(1) : name;
}

/** As compilers do it, for sets that leave it out. */
function toJsonName(name: string): string {
  return name.replaceAll(/_+([^_])/g, (_all, letter: string) => letter.toUpperCase()).replaceAll("_", "");
}
