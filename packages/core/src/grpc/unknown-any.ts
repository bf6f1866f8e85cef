/**
 * Messages in `google.protobuf.Any` whose types are described nowhere (SVC-1): reflection tells what methods name, and
 * not what is packed. JSON can say of them which type it is, and the bytes.
 */
import {
  create,
  createFileRegistry,
  createRegistry,
  fromBinary,
  isMessage,
  toBinary,
  type DescMessage,
  type Message,
  type Registry,
} from "@bufbuild/protobuf";
import { isReflectMessage, reflect, type ReflectMessage } from "@bufbuild/protobuf/reflect";
import {
  AnySchema,
  BytesValueSchema,
  FieldDescriptorProto_Label,
  FieldDescriptorProto_Type,
  FileDescriptorProtoSchema,
} from "@bufbuild/protobuf/wkt";

/**
 * Packs the bytes of such messages as the field `value` of a type of the same name.
 * @returns the registry that knows these types, too; undefined: there are none
 */
export function describeUnknown(schema: DescMessage, message: Message, registry: Registry): Registry | undefined {
  const types = new Map<string, DescMessage>();
  describeWithin(reflect(schema, message), registry, types);
  return types.size === 0 ? undefined : createRegistry(registry, ...types.values());
}

function describeWithin(message: ReflectMessage, registry: Registry, types: Map<string, DescMessage>): void {
  if (message.desc.typeName === AnySchema.typeName) {
    describePacked(message, registry, types);
    return;
  }
  for (const field of message.fields) {
    if (field.message === undefined || !message.isSet(field)) continue;
    const value: unknown = message.get(field);
    if (isReflectMessage(value)) describeWithin(value, registry, types);
    else if (field.fieldKind === "list") {
      for (const each of message.get(field)) if (isReflectMessage(each)) describeWithin(each, registry, types);
    } else if (field.fieldKind === "map") {
      for (const each of message.get(field).values()) if (isReflectMessage(each)) describeWithin(each, registry, types);
    }
  }
}

function describePacked(any: ReflectMessage, registry: Registry, types: Map<string, DescMessage>): void {
  const packed = any.message;
  if (!isMessage(packed, AnySchema) || packed.typeUrl === "") return;
  const name = packed.typeUrl.slice(packed.typeUrl.lastIndexOf("/") + 1);
  const known = registry.getMessage(name);
  if (known === undefined) {
    types.set(name, types.get(name) ?? bytesNamed(name));
    packed.value = toBinary(BytesValueSchema, create(BytesValueSchema, { value: packed.value }));
    return;
  }
  const inner = fromBinary(known, packed.value);
  describeWithin(reflect(known, inner), registry, types);
  packed.value = toBinary(known, inner);
}

function bytesNamed(name: string): DescMessage {
  const dot = name.lastIndexOf(".");
  const field = {
    name: "value",
    jsonName: "value",
    number: 1,
    type: FieldDescriptorProto_Type.BYTES,
    label: FieldDescriptorProto_Label.OPTIONAL,
  };
  const file = create(FileDescriptorProtoSchema, {
    name: `${name}.proto`,
    syntax: "proto3",
    package: name.slice(0, Math.max(0, dot)),
    messageType: [{ name: name.slice(dot + 1), field: [field] }],
  });
  const made = createFileRegistry(file, () => undefined).getMessage(name);
  if (made === undefined) throw new Error(`'${name}' is no name of a type`);
  return made;
}
