/**
 * Descriptors by server reflection (SVC-1), for services whose configuration has none. The newer version of
 * the protocol is asked for first; both have the same messages.
 */
import type { Http2Connection } from "../ports/egress.ts";
import type { GrpcReply, GrpcRequest } from "./call.ts";
import { callGrpc } from "./call.ts";
import { missingImports, readFiles, type Descriptors } from "./descriptors.ts";
import { notFound, toStatusError, unimplemented, type GrpcStatus, type StatusErrorOptions } from "./status.ts";
import { bytesOf, readFields, textField, toText } from "./wire.ts";

const versions = ["v1", "v1alpha"] as const;
const ownServices = /^grpc\.(?:reflection|health|channelz)\./;
/** Rounds in which imports are asked for that were not sent along. */
const mostRounds = 16;
/** Services of a server, or files of descriptors. */
const mostNames = 20_000;
const wellKnownImport = /^google\/protobuf\//;

/** Fields of ServerReflectionRequest. */
const fileByName = 3;
const fileContaining = 4;
const listServices = 7;

export interface ReflectionOptions
  extends StatusErrorOptions, Pick<GrpcRequest, "metadata" | "timeoutMs" | "signal" | "maxBytes"> {
  /** Those wanted; absent: all but those of gRPC itself. */
  readonly services?: readonly string[] | undefined;
}

/** @throws GatewayError `tool_failed` where the server has no reflection or no such service; as `callGrpc` */
export async function reflect(connection: Http2Connection, options: ReflectionOptions): Promise<Descriptors> {
  let last: GrpcReply | undefined;
  for (const version of versions) {
    const asked = new Asking(connection, version, options);
    const services = options.services ?? (await asked.services());
    const isListed = options.services === undefined;
    const files = services === undefined ? undefined : await asked.filesOf(services, isListed);
    if (files !== undefined) return readFiles(files);
    last = asked.last;
  }
  throw toStatusError(last?.status ?? { code: unimplemented, message: "" }, options);
}

/** Undefined stands for a server that does not know this version. */
class Asking {
  readonly #connection: Http2Connection;
  readonly #version: string;
  readonly #options: ReflectionOptions;
  last: GrpcReply | undefined;

  constructor(connection: Http2Connection, version: string, options: ReflectionOptions) {
    this.#connection = connection;
    this.#version = version;
    this.#options = options;
  }

  async services(): Promise<readonly string[] | undefined> {
    const answers = await this.#ask([textField(listServices, "*")]);
    if (answers === undefined) return undefined;
    const services = fieldsOf(fieldsOf(answers, 6), 1);
    return fieldsOf(services, 1)
      .map(toText)
      .filter((name) => !ownServices.test(name));
  }

  /** @param isListed the server names them all, and those that it cannot describe are none of our choice */
  async filesOf(services: readonly string[], isListed: boolean): Promise<readonly Uint8Array[] | undefined> {
    const answers = await this.#ask(
      services.map((name) => textField(fileContaining, name)),
      isListed,
    );
    if (answers === undefined) return undefined;
    let files = filesIn(answers);
    for (let round = 0; round < mostRounds; round += 1) {
      const missing = missingImports(readFiles(files)).filter((name) => !wellKnownImport.test(name));
      if (missing.length === 0) break;
      const more = filesIn((await this.#ask(missing.map((name) => textField(fileByName, name)))) ?? []);
      if (more.length === 0) break;
      files = [...files, ...more];
      const size = files.reduce((sum, { byteLength }) => sum + byteLength, 0);
      if (size > this.#options.maxBytes) throw new RangeError("the files are too large together");
    }
    return files;
  }

  /** @param mayLack an answer says so where something is not there; without any other answer it is an error still */
  async #ask(messages: readonly Uint8Array[], mayLack = false): Promise<readonly Uint8Array[] | undefined> {
    if (messages.length === 0) return [];
    const { metadata, timeoutMs, signal, maxBytes } = this.#options;
    const path = `grpc.reflection.${this.#version}.ServerReflection/ServerReflectionInfo`;
    this.last = await callGrpc(this.#connection, { path, messages, metadata, timeoutMs, signal, maxBytes });
    const { status } = this.last;
    if (status.code === unimplemented) return undefined;
    if (status.code !== 0) throw toStatusError(status, this.#options);
    const refusals: GrpcStatus[] = [];
    for (const answer of this.last.messages) {
      const [refusal] = readFields(answer, 7);
      if (refusal === undefined) continue;
      const [code] = readFields(refusal.bytes, 1);
      const [text] = readFields(refusal.bytes, 2);
      const message = text === undefined ? "" : toText(text.bytes);
      refusals.push({ code: code?.value ?? notFound, message: `reflection: ${message}` });
    }
    const isFatal = refusals.length === this.last.messages.length || !mayLack;
    const refusal = refusals.find(({ code }) => isFatal || code !== notFound);
    if (refusal !== undefined) throw toStatusError(refusal, this.#options);
    return this.last.messages;
  }
}

function filesIn(answers: readonly Uint8Array[]): readonly Uint8Array[] {
  return fieldsOf(fieldsOf(answers, 4), 1);
}

function fieldsOf(messages: readonly Uint8Array[], wanted: number): readonly Uint8Array[] {
  return bytesOf(messages, wanted, mostNames);
}
