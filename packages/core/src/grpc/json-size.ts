/**
 * How much JSON the bytes of a message become at least (SVC-1), found out without making it: a few bytes of
 * an empty message stand for all of its defaults, and an object in memory is far larger than its two bytes.
 * Fields are read by their types whatever wire type they say, as the library does: nothing is passed over.
 */
import { ScalarType, type DescExtension, type DescField, type DescMessage, type Registry } from "@bufbuild/protobuf";
import { BinaryReader, WireType } from "@bufbuild/protobuf/wire";
import { FeatureSet_FieldPresence } from "@bufbuild/protobuf/wkt";
import { MessageTooLarge } from "./frames.ts";

/** Characters that a message or an unknown field counts for at least, by the memory that it takes. */
const smallest = 32;
/** And for each field of its type, set or not. */
const smallestField = 4;
/** Around a name: `"":0,`. */
const aroundNames = 5;
/** Of an element of a list: `0,`, or `"0",` where it has 64 bits. */
const elementText = 2;
const wideElementText = 4;

type Field = DescField | DescExtension;
type Scalar = ScalarType | undefined;

interface Known {
  readonly fields: ReadonlyMap<number, DescField>;
  /** Of one that is empty. */
  readonly text: number;
}

interface Within {
  /** Position after its last byte; a group ends with a tag before. */
  readonly end: number;
  readonly isGroup?: boolean;
  readonly spend: (characters: number) => void;
}

export interface JsonSizeOptions {
  readonly registry: Registry;
  readonly emitDefaults: boolean;
}

export class JsonSize {
  readonly #options: JsonSizeOptions;
  readonly #known = new Map<DescMessage, Known>();

  constructor(options: JsonSizeOptions) {
    this.#options = options;
  }

  /**
   * @returns characters that it comes to at least
   * @throws MessageTooLarge where they are more than `most`; Error for what is no message
   */
  check(type: DescMessage, bytes: Uint8Array, most: number): number {
    let left = most;
    const spend = (characters: number): void => {
      left -= characters;
      if (left < 0) throw new MessageTooLarge();
    };
    this.#message(type, new BinaryReader(bytes), { end: bytes.byteLength, spend });
    return most - left;
  }

  #message(type: DescMessage, reader: BinaryReader, within: Within): void {
    const { registry } = this.#options;
    const { fields, text } = this.#of(type);
    within.spend(text);
    const isAny = type.typeName === "google.protobuf.Any";
    let packedName = "";
    let packed: Uint8Array | undefined;
    while (reader.pos < within.end) {
      const [number, wire] = reader.tag();
      if (within.isGroup === true && wire === WireType.EndGroup) break;
      const field: Field | undefined = fields.get(number) ?? registry.getExtensionFor(type, number);
      if (field === undefined) {
        within.spend(smallest);
        reader.skip(wire, number);
      } else if (isAny && number === 1) packedName = reader.string();
      else if (isAny && number === 2) packed = reader.bytes();
      else this.#field(field, wire, reader, within);
    }
    const inner = registry.getMessage(packedName.slice(packedName.lastIndexOf("/") + 1));
    if (packed === undefined || inner === undefined) return;
    this.#message(inner, new BinaryReader(packed), { end: packed.byteLength, spend: within.spend });
  }

  #field(field: Field, wire: WireType, reader: BinaryReader, within: Within): void {
    if (field.fieldKind === "map") this.#entry(field, reader, within);
    else if (field.message !== undefined) {
      const { spend } = within;
      const inner = field.delimitedEncoding ? { end: reader.len, isGroup: true, spend } : nested(reader, within);
      this.#message(field.message, reader, inner);
    } else if (field.fieldKind === "list") list(field, wire, reader, within);
    else reader.skip(wireOf(field.scalar), field.number);
  }

  #entry(field: DescField & { fieldKind: "map" }, reader: BinaryReader, within: Within): void {
    const { end } = nested(reader, within);
    within.spend(wideElementText);
    while (reader.pos < end) {
      const [number, wire] = reader.tag();
      if (number === 1) reader.skip(wireOf(field.mapKey), number);
      else if (number !== 2) reader.skip(wire, number);
      else if (field.message === undefined) reader.skip(wireOf(field.scalar), number);
      else this.#message(field.message, reader, nested(reader, within));
    }
  }

  #of(type: DescMessage): Known {
    const known = this.#known.get(type);
    if (known !== undefined) return known;
    const made: Known = {
      fields: new Map(type.fields.map((field) => [field.number, field])),
      text: Math.max(smallest + smallestField * type.fields.length, this.#options.emitDefaults ? defaultsOf(type) : 0),
    };
    this.#known.set(type, made);
    return made;
  }
}

/** What has its length before it. */
function nested(reader: BinaryReader, { spend }: Within): Within {
  const length = reader.uint32();
  const end = reader.pos + length;
  if (end > reader.len) throw new RangeError("premature EOF");
  return { end, spend };
}

function list(field: Field, wire: WireType, reader: BinaryReader, within: Within): void {
  const own = wireOf(field.scalar);
  const isPacked = wire === WireType.LengthDelimited && own !== WireType.LengthDelimited;
  const { end } = isPacked ? nested(reader, within) : { end: reader.pos + 1 };
  while (reader.pos < end) {
    if (own === WireType.Varint) within.spend(elementOf(field, reader.int32()));
    else {
      within.spend(elementText);
      reader.skip(own, field.number);
    }
  }
}

function elementOf(field: Field, value: number): number {
  if (field.enum !== undefined) return elementText + (field.enum.value[value]?.name.length ?? 0);
  return isWide.has(field.scalar) ? wideElementText : elementText;
}

const isWide: ReadonlySet<Scalar> = new Set([ScalarType.INT64, ScalarType.UINT64, ScalarType.SINT64]);

const wires: ReadonlyMap<Scalar, WireType> = new Map([
  [ScalarType.STRING, WireType.LengthDelimited],
  [ScalarType.BYTES, WireType.LengthDelimited],
  [ScalarType.DOUBLE, WireType.Bit64],
  [ScalarType.FIXED64, WireType.Bit64],
  [ScalarType.SFIXED64, WireType.Bit64],
  [ScalarType.FLOAT, WireType.Bit32],
  [ScalarType.FIXED32, WireType.Bit32],
  [ScalarType.SFIXED32, WireType.Bit32],
]);

/** Undefined stands for enums. */
function wireOf(scalar: Scalar): WireType {
  return wires.get(scalar) ?? WireType.Varint;
}

/** Characters of the fields that are written although they are not set; well-known types have forms of their own. */
function defaultsOf({ typeName, fields }: DescMessage): number {
  if (typeName.startsWith("google.protobuf.")) return 0;
  const written = fields.filter(
    ({ fieldKind, presence }) =>
      fieldKind === "list" || fieldKind === "map" || presence === FeatureSet_FieldPresence.IMPLICIT,
  );
  return written.reduce((sum, { jsonName }) => sum + jsonName.length + aroundNames, 0);
}
