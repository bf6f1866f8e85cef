/** The messages of the gRPC method that is measured, as bytes. */
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { createFileRegistry, fromBinary, fromJson, toBinary, type DescMessage } from "@bufbuild/protobuf";
import { FileDescriptorSetSchema } from "@bufbuild/protobuf/wkt";

const set = readFileSync(join(import.meta.dirname, "../../test/fixtures/grpc/loyalty.binpb"));
const registry = createFileRegistry(fromBinary(FileDescriptorSetSchema, set));

/** A FileDescriptorSet in base64, as services are configured with it. */
export const descriptors: string = set.toString("base64");

export function listReply(): Uint8Array {
  const customers = [{ customerId: "C001", name: "Ann", level: "GOLD" }];
  const message = messageNamed("loyalty.v1.ListReply");
  return toBinary(message, fromJson(message, { customers, totalCount: "1" }, { registry }));
}

export function listRequest(): Uint8Array {
  const message = messageNamed("loyalty.v1.ListRequest");
  return toBinary(message, fromJson(message, { page: 2 }, { registry }));
}

function messageNamed(name: string): DescMessage {
  const message = registry.getMessage(name);
  if (message === undefined) throw new Error(`the fixture has no message ${name}`);
  return message;
}
