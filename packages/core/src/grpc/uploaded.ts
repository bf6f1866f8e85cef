/** Descriptors that stand in a configuration, read once for each text; everything made of them is pure. */
import { GatewayError } from "../errors/gateway-error.ts";
import type { Codec } from "./codec.ts";
import { readDescriptorSet, type Descriptors } from "./descriptors.ts";

/** Sets of descriptors of which something is kept. */
const most = 200;

interface Uploaded {
  readonly descriptors: Descriptors;
  readonly codecs: Map<boolean, Promise<Codec>>;
}

const known = new Map<string, Uploaded>();

function open(base64: string): Uploaded {
  const before = known.get(base64);
  if (before !== undefined) return before;
  const made = { descriptors: read(base64), codecs: new Map<boolean, Promise<Codec>>() };
  known.set(base64, made);
  const oldest = known.keys().next().value;
  if (known.size > most && oldest !== undefined) known.delete(oldest);
  return made;
}

function read(base64: string): Descriptors {
  try {
    return readDescriptorSet(Buffer.from(base64, "base64"));
  } catch (cause) {
    throw new GatewayError(
      "invalid_definition",
      "'config.grpc.descriptors' is no FileDescriptorSet; make it with 'protoc --include_imports --descriptor_set_out' and encode it as base64.",
      { param: "config.grpc.descriptors", cause },
    );
  }
}

/** @throws GatewayError `invalid_definition` */
export function uploadedDescriptors(base64: string): Descriptors {
  return open(base64).descriptors;
}

/** @throws GatewayError `invalid_definition` */
export function uploadedCodec(base64: string, emitDefaults: boolean): Promise<Codec> {
  const { descriptors, codecs } = open(base64);
  const before = codecs.get(emitDefaults);
  if (before !== undefined) return before;
  const made = loadCodec(descriptors, emitDefaults);
  codecs.set(emitDefaults, made);
  return made;
}

/** With the library, which is loaded at the first use. @throws GatewayError `invalid_definition` */
export async function loadCodec(descriptors: Descriptors, emitDefaults: boolean): Promise<Codec> {
  const { createCodec } = await import("./codec.ts");
  return createCodec(descriptors, { emitDefaults });
}
