import { execFileSync } from "node:child_process";
import { mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { expect, test } from "vitest";
import { findProgram } from "../../../../test/support/brokers/programs.ts";
import { verifies } from "../../../../test/support/verifies.ts";
import { authorization } from "./rocketmq-api.ts";
import { rocketMqDescriptors } from "./rocketmq-descriptors.ts";

test(`signs the time of a request with the secret key ${verifies("MQ-4")}`, () => {
  expect(authorization({ username: "AK", password: "SK" }, "20261127T080000Z")).toBe(
    "MQv2-HMAC-SHA1 Credential=AK, SignedHeaders=x-mq-date-time, Signature=E2E2A0DE235242CA87BE3D9DF5A7A594D8B1231E",
  );
});

const protoc = findProgram("protoc");
const missing = protoc === undefined ? " (skipped: protoc is not installed; Debian: protobuf-compiler)" : "";
test.skipIf(protoc === undefined)(`speaks by descriptors that are made of rocketmq.proto${missing}`, () => {
  const directory = mkdtempSync(join(tmpdir(), "toolyard-protoc-"));
  try {
    const file = join(directory, "set.binpb");
    execFileSync(protoc ?? "", [`--descriptor_set_out=${file}`, "rocketmq.proto"], { cwd: import.meta.dirname });
    expect(readFileSync(file, "base64")).toBe(rocketMqDescriptors);
  } finally {
    rmSync(directory, { recursive: true });
  }
});
