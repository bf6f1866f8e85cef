/**
 * Messages as JSON and as bytes (SVC-1): the JSON mapping of Protocol Buffers, in both directions, by what a
 * FileDescriptorSet says of the types. Loaded at the first gRPC call, with the library it brings.
 */
import { fromBinary, fromJson, toBinary, toJsonString, type DescMessage, type FileRegistry } from "@bufbuild/protobuf";
import { GatewayError } from "../errors/gateway-error.ts";
import type { JsonObject } from "../json.ts";
import { withDelivery } from "../errors/delivery.ts";
import type { Descriptors, MethodDescriptor } from "./descriptors.ts";
import { MessageTooLarge } from "./frames.ts";
import { JsonSize } from "./json-size.ts";
import { badDescriptors, reasonOf, toRegistry } from "./registry.ts";
import { describeUnknown } from "./unknown-any.ts";

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

function messageOf(registry: FileRegistry, name: string): DescMessage {
  const message = registry.getMessage(name);
  if (message === undefined) throw badDescriptors(`they hold no message '${name}'`);
  return message;
}
