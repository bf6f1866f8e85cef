/**
 * The adapters of AWS against servers that are not ours: moto (PyPI), which knows S3, SQS and KMS. Heavier
 * than npm, so it runs where moto is installed, or TOOLYARD_MOTO_URL says that one listens. It checks
 * neither signatures nor links and its time cannot be moved; our own servers in test/support/aws can that.
 */
import { randomBytes, randomUUID } from "node:crypto";
import { readAll } from "@toolyard/core/ports/blob-store";
import type { PolledTaskQueue } from "@toolyard/core/ports/task-queue";
import { createKmsKeyVault } from "@toolyard/platform/aws/kms-key-vault";
import { createS3BlobStore } from "@toolyard/platform/aws/s3-blob-store";
import { createSqsTaskQueue } from "@toolyard/platform/aws/sqs-task-queue";
import { afterAll, describe, expect, test } from "vitest";
import * as z from "zod";
import { startMoto } from "../support/moto.ts";
import { describeBlobStore } from "./blob-store.ts";
import { describeKeyVault } from "./key-vault.ts";

const moto = await startMoto();
if (typeof moto === "string") console.log(`Skipped: the adapters of AWS against moto; ${moto}.`);
else afterAll(() => moto.close());

const region = "us-east-1";
const client = {
  endpoint: typeof moto === "string" ? "http://127.0.0.1:9" : moto.url,
  region,
  credentials: { accessKeyId: "test", secretAccessKey: "test" },
};

/** Makes what the adapters expect to be there. */
async function ask(service: string, target: string, input: object): Promise<unknown> {
  const headers = {
    authorization: `AWS4-HMAC-SHA256 Credential=test/20260101/${region}/${service}/aws4_request, SignedHeaders=host, Signature=0`,
    "content-type": "application/x-amz-json-1.0",
    "x-amz-target": target,
  };
  const answer = await fetch(client.endpoint, { method: "POST", headers, body: JSON.stringify(input) });
  if (!answer.ok) throw new Error(`${target}: ${answer.status} ${await answer.text()}`);
  return answer.json();
}

const nameOf = (): string => `t-${randomUUID()}`;

async function newBucket(): Promise<string> {
  const bucket = nameOf();
  const answer = await fetch(`${client.endpoint}/${bucket}`, { method: "PUT" });
  if (!answer.ok) throw new Error(`the bucket was not made: ${answer.status}`);
  return bucket;
}

async function newKey(): Promise<string> {
  const made = await ask("kms", "TrentService.CreateKey", {});
  return z.object({ KeyMetadata: z.object({ Arn: z.string() }) }).parse(made).KeyMetadata.Arn;
}

async function newQueue(Attributes: Readonly<Record<string, string>> = {}): Promise<string> {
  const made = await ask("sqs", "AmazonSQS.CreateQueue", { QueueName: nameOf(), Attributes });
  return z.object({ QueueUrl: z.string() }).parse(made).QueueUrl;
}

async function newQueues(): Promise<PolledTaskQueue> {
  const dead = await newQueue();
  const deadLetterTargetArn = `arn:aws:sqs:${region}:123456789012:${dead.split("/").at(-1)}`;
  const RedrivePolicy = JSON.stringify({ deadLetterTargetArn, maxReceiveCount: 2 });
  const urls = { short: await newQueue({ RedrivePolicy }), long: await newQueue() };
  return createSqsTaskQueue({ urls, client, waitSeconds: 2 });
}

// It reads a service at the first request for it, which takes a busy machine long.
describe.skipIf(typeof moto === "string")("moto", { timeout: 60_000 }, () => {
  describeBlobStore(
    "S3 of moto",
    async () => createS3BlobStore({ bucket: await newBucket(), prefix: "p", pathStyle: true, client }),
    { checksLinks: false },
  );

  describeKeyVault("KMS of moto", async () => createKmsKeyVault({ keyId: await newKey(), client }));

  test("puts a large blob together from its parts, once", async () => {
    const store = createS3BlobStore({ bucket: await newBucket(), pathStyle: true, client });
    const bytes = randomBytes(17 * 1024 ** 2);
    expect(await store.put("ten_1/large", bytes, { ifAbsent: true })).toBe(true);
    expect(await store.put("ten_1/large", bytes, { ifAbsent: true })).toBe(false);
    const blob = await store.get("ten_1/large", { start: 8 * 1024 ** 2 - 5, end: 8 * 1024 ** 2 + 5 });
    const part = blob === undefined ? Buffer.alloc(0) : Buffer.from(await readAll(blob.body));
    expect(part).toEqual(bytes.subarray(8 * 1024 ** 2 - 5, 8 * 1024 ** 2 + 5));
  });

  test("carries messages, delays them, shows them again, and lays them aside in the end", async () => {
    const queue = await newQueues();
    await queue.ping();
    const messages = Array.from({ length: 12 }, (_none, at) => ({ tenant: `ten_${at % 2}`, callId: `call_${at}` }));
    await queue.send("short", messages);
    const seen = new Set<string>();
    while (seen.size < messages.length) {
      const received = await queue.receive("short", { limit: 10, visibilityMs: 60_000 });
      for (const { callId } of received) seen.add(callId);
      await queue.delete(
        "short",
        received.map(({ receipt }) => receipt),
      );
    }
    const late = { tenant: "ten_1", callId: "call_late" };
    await queue.send("short", [late], { delayMs: 1_000 });
    for (const receives of [1, 2]) {
      let received = await queue.receive("short", { limit: 1, visibilityMs: 1_000 });
      while (received.length === 0) received = await queue.receive("short", { limit: 1, visibilityMs: 1_000 });
      expect(received).toMatchObject([{ ...late, receives }]);
    }
    await expect
      .poll(
        async () => {
          await queue.receive("short", { limit: 1, visibilityMs: 1_000 });
          return queue.deadLetters("short");
        },
        { timeout: 15_000 },
      )
      .toEqual([late]);
  });
});
