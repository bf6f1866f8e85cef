/** RocketMQ's messages as JSON and bytes, for peers of tests that speak its gRPC API by grpc-js. */
import {
  create,
  createFileRegistry,
  fromBinary,
  fromJson,
  toBinary,
  toJson,
  type DescMessage,
  type JsonValue,
} from "@bufbuild/protobuf";
import {
  file_google_protobuf_duration,
  file_google_protobuf_timestamp,
  FileDescriptorSetSchema,
} from "@bufbuild/protobuf/wkt";
import type { ServiceDefinition } from "@grpc/grpc-js";
import { rocketMqDescriptors } from "@toolyard/platform/mq/rocketmq-descriptors";

const given = fromBinary(FileDescriptorSetSchema, Buffer.from(rocketMqDescriptors, "base64"));
const registry = createFileRegistry(
  create(FileDescriptorSetSchema, {
    file: [file_google_protobuf_duration.proto, file_google_protobuf_timestamp.proto, ...given.file],
  }),
);

const messagingService = "apache.rocketmq.v2.MessagingService";

/** What stands in a message, as JSON has it. */
export type Fields = Record<string, JsonValue>;

/** Empty where it is none. */
export function textOf(value: JsonValue | undefined): string {
  return typeof value === "string" ? value : "";
}

function schemaOf(name: string): DescMessage {
  const schema = registry.getMessage(`apache.rocketmq.v2.${name}`);
  if (schema === undefined) throw new Error(`no message ${name}`);
  return schema;
}

function encode(name: string, fields: Fields): Buffer {
  const schema = schemaOf(name);
  return Buffer.from(toBinary(schema, fromJson(schema, fields, { registry })));
}

function decode(name: string, bytes: Uint8Array): Fields {
  const schema = schemaOf(name);
  const json = toJson(schema, fromBinary(schema, bytes), { registry });
  return typeof json === "object" && json !== null && !Array.isArray(json) ? json : {};
}

/** One method, whose messages stand as `Fields` on both sides. */
export function rocketMqMethod(name: string, streams: "none" | "answers" | "both"): ServiceDefinition[string] {
  const [request, response] =
    name === "Telemetry" ? ["TelemetryCommand", "TelemetryCommand"] : [`${name}Request`, `${name}Response`];
  return {
    path: `/${messagingService}/${name}`,
    requestStream: streams === "both",
    responseStream: streams !== "none",
    requestSerialize: (fields: Fields) => encode(request, fields),
    requestDeserialize: (bytes: Buffer) => decode(request, bytes),
    responseSerialize: (fields: Fields) => encode(response, fields),
    responseDeserialize: (bytes: Buffer) => decode(response, bytes),
  };
}
