/**
 * Descriptors that somebody has uploaded, read once for each text or blob; everything made of them is pure.
 */
import { GatewayError } from "../errors/gateway-error.ts";
import type { Codec } from "./codec.ts";
import { readDescriptorSet, type Descriptors } from "./descriptors.ts";

/** Sets of descriptors of which something is kept. */
const most = 200;

/** Descriptors with what encodes and decodes their messages, which is made at the first use. */
export class DescriptorSet {
  readonly descriptors: Descriptors;
  readonly #codecs = new Map<boolean, Promise<Codec>>();

  constructor(descriptors: Descriptors) {
    this.descriptors = descriptors;
  }

  /** @throws GatewayError `invalid_definition` saying what is wrong with the descriptors */
  codec(emitDefaults: boolean): Promise<Codec> {
    const known = this.#codecs.get(emitDefaults);
    if (known !== undefined) return known;
    const made = loadCodec(this.descriptors, emitDefaults);
    this.#codecs.set(emitDefaults, made);
    return made;
  }
}

/** Keeps what was used last. */
export class KnownSets<Key extends string> {
  readonly #sets = new Map<Key, DescriptorSet>();

  get(key: Key): DescriptorSet | undefined {
    return this.#sets.get(key);
  }

  keep(key: Key, set: DescriptorSet): DescriptorSet {
    this.#sets.set(key, set);
    const oldest = this.#sets.keys().next().value;
    if (this.#sets.size > most && oldest !== undefined) this.#sets.delete(oldest);
    return set;
  }
}

const inConfigurations = new KnownSets();

/** Descriptors that stand in a configuration. @throws GatewayError `invalid_definition` */
export function configuredSet(base64: string): DescriptorSet {
  const known = inConfigurations.get(base64);
  if (known !== undefined) return known;
  const descriptors = readSet(Buffer.from(base64, "base64"), {
    param: "config.grpc.descriptors",
    advice: "make it with 'protoc --include_imports --descriptor_set_out' and encode it as base64",
  });
  return inConfigurations.keep(base64, new DescriptorSet(descriptors));
}

/** @throws GatewayError `invalid_definition` naming where the bytes came from */
export function readSet(
  bytes: Uint8Array,
  { param, advice }: { readonly param: string; readonly advice: string },
): Descriptors {
  try {
    return readDescriptorSet(bytes);
  } catch (cause) {
    const reason = cause instanceof RangeError ? ` that can be read: ${cause.message}` : "";
    throw new GatewayError("invalid_definition", `'${param}' is no FileDescriptorSet${reason}; ${advice}.`, {
      param,
      cause,
    });
  }
}

/** With the library, which is loaded at the first use. @throws GatewayError `invalid_definition` */
export async function loadCodec(descriptors: Descriptors, emitDefaults: boolean): Promise<Codec> {
  const { createCodec } = await import("./codec.ts");
  return createCodec(descriptors, { emitDefaults });
}
