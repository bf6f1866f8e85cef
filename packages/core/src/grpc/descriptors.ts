/**
 * What a FileDescriptorSet says of services, messages and enums (SVC-1): enough to list tools with their
 * parameters, without loading the library that encodes and decodes. Comments become descriptions where the
 * set was made with them (`protoc --include_imports --include_source_info --descriptor_set_out=…`).
 */
import { outerOf, TypeNames } from "./type-names.ts";
import { bytesOf, readFields, toText } from "./wire.ts";

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
  /** Give types their whole names, once all types are known. */
  readonly toName: ((types: TypeNames) => void)[];
  /** Places that are left. */
  left: number;
}

/** Imports, messages, fields, values of enums and methods of one set; each takes far more memory than bytes. */
const mostParts = 400_000;

/** With its package; names of many types that are longer are not told apart in any time. */
const longestName = 500;

/** Messages within messages; deeper is nothing that a compiler made. */
const deepest = 64;

/** @throws RangeError, TypeError where the bytes are no FileDescriptorSet */
export function readDescriptorSet(set: Uint8Array): Descriptors {
  return readFiles(all(set, 1));
}

/** @param files serialised FileDescriptorProtos; those of one name count once */
export function readFiles(files: readonly Uint8Array[]): Descriptors {
  const collected: Collected = {
    messages: new Map(),
    enums: new Map(),
    methods: new Map(),
    toName: [],
    left: mostParts,
  };
  const byName = new Map<string, FileDescriptor>();
  for (const bytes of files) {
    const name = text(bytes, 1);
    if (name === "" || byName.has(name)) continue;
    byName.set(name, { name, imports: counted(all(bytes, 3), collected).map(toText), bytes });
    readFile(bytes, collected);
  }
  const { messages, enums, methods, toName } = collected;
  const types = new TypeNames((name) => messages.has(name) || enums.has(name));
  for (const name of toName) name(types);
  return { files: [...byName.values()], messages, enums, methods };
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
  const [info] = readFields(file, 9);
  const comments = readComments(info?.bytes);
  const scope = name === "" ? "" : `${name}.`;
  counted(all(file, 4), collected).forEach((message, index) =>
    readMessage(message, { scope, path: `4.${index}`, comments }, collected),
  );
  for (const type of counted(all(file, 5), collected)) readEnum(type, scope, collected);
  all(file, 6).forEach((service, index) => readService(service, { scope, path: `6.${index}`, comments }, collected));
}

function readMessage(bytes: Uint8Array, { scope, path, comments }: Place, collected: Collected, depth = 0): void {
  if (depth > deepest) throw new RangeError("messages are nested too deep");
  const fullName = named(scope, text(bytes, 1));
  const [options] = readFields(bytes, 7);
  collected.messages.set(fullName, {
    fullName,
    fields: counted(all(bytes, 2), collected).map((field, index) =>
      readField(field, { fullName, comment: comments.get(`${path}.2.${index}`) ?? "" }, collected),
    ),
    isMapEntry: options !== undefined && number(options.bytes, 7) === 1,
  });
  for (const [index, inner] of counted(all(bytes, 3), collected).entries()) {
    readMessage(inner, { scope: `${fullName}.`, path: `${path}.3.${index}`, comments }, collected, depth + 1);
  }
  for (const type of counted(all(bytes, 4), collected)) readEnum(type, `${fullName}.`, collected);
}

function readField(
  bytes: Uint8Array,
  { fullName, comment }: { readonly fullName: string; readonly comment: string },
  { toName }: Collected,
): FieldDescriptor {
  const label = number(bytes, 4);
  const name = text(bytes, 1);
  const jsonName = text(bytes, 10);
  const typeName = text(bytes, 6);
  const field = {
    name,
    jsonName: jsonName === "" ? toJsonName(name) : jsonName,
    number: number(bytes, 3),
    type: number(bytes, 5),
    typeName: withoutDot(typeName),
    isRepeated: label === 3,
    isRequired: label === 2,
    comment,
  };
  if (isPartial(typeName)) {
    toName.push((types) => {
      field.typeName = types.whole(typeName, fullName);
    });
  }
  return field;
}

function readEnum(bytes: Uint8Array, scope: string, collected: Collected): void {
  collected.enums.set(
    named(scope, text(bytes, 1)),
    counted(all(bytes, 2), collected).map((value) => text(value, 1)),
  );
}

const idempotencies = ["unknown", "no_side_effects", "idempotent"] as const;

function readService(bytes: Uint8Array, { scope, path, comments }: Place, collected: Collected): void {
  const { methods, toName } = collected;
  const service = named(scope, text(bytes, 1));
  for (const [index, method] of counted(all(bytes, 2), collected).entries()) {
    const name = text(method, 1);
    const [options] = readFields(method, 4);
    const level = options === undefined ? 0 : number(options.bytes, 34);
    const [input, output] = [text(method, 2), text(method, 3)];
    const read = {
      path: named(`${service}/`, name),
      service,
      name,
      input: withoutDot(input),
      output: withoutDot(output),
      isClientStreaming: number(method, 5) === 1,
      isServerStreaming: number(method, 6) === 1,
      idempotency: idempotencies[level] ?? "unknown",
      comment: comments.get(`${path}.2.${index}`) ?? "",
    };
    methods.set(read.path, read);
    if (isPartial(input) || isPartial(output)) {
      toName.push((types) => {
        read.input = types.whole(input, outerOf(service));
        read.output = types.whole(output, outerOf(service));
      });
    }
  }
}

/** Comments before a declaration, or else behind it, by the path of the declaration. */
function readComments(info: Uint8Array | undefined): ReadonlyMap<string, string> {
  const comments = new Map<string, string>();
  if (info === undefined) return comments;
  for (const { bytes: location } of readFields(info, 1)) {
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

function all(bytes: Uint8Array, wanted: number): readonly Uint8Array[] {
  return bytesOf([bytes], wanted, mostParts);
}

function counted(parts: readonly Uint8Array[], collected: Collected): readonly Uint8Array[] {
  collected.left -= parts.length;
  if (collected.left < 0) throw new RangeError(`the files hold more than ${mostParts} parts`);
  return parts;
}

function text(bytes: Uint8Array, wanted: number): string {
  let last: Uint8Array | undefined;
  for (const field of readFields(bytes, wanted)) last = field.bytes;
  return last === undefined ? "" : toText(last);
}

function number(bytes: Uint8Array, wanted: number): number {
  let last = 0;
  for (const { value } of readFields(bytes, wanted)) last = value;
  return last;
}

function named(scope: string, name: string): string {
  const whole = scope + name;
  if (whole.length > longestName) throw new RangeError(`a name has more than ${longestName} characters`);
  return whole;
}

/** Scalars have none. */
function isPartial(typeName: string): boolean {
  return typeName !== "" && !typeName.startsWith(".");
}

function withoutDot(name: string): string {
  return name.startsWith(".") ? name.slice(1) : name;
}

/** As compilers do it, for sets that leave it out. */
export function toJsonName(name: string): string {
  return name.replaceAll(/(?<!_)_+([^_])/g, (_all, letter: string) => letter.toUpperCase()).replaceAll("_", "");
}
