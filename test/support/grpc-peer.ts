/**
 * A gRPC server of grpc-js with the services of test/fixtures/grpc/loyalty.proto: keeps what it was asked,
 * answers as told, and describes itself by reflection where it is to. Its messages are read and written with
 * descriptors that protoc has made.
 */
import { readFileSync } from "node:fs";
import { join } from "node:path";
import {
  create,
  createFileRegistry,
  fromBinary,
  fromJson,
  toBinary,
  toJson,
  type FileRegistry,
  type JsonValue,
} from "@bufbuild/protobuf";
import {
  FileDescriptorProtoSchema,
  FileDescriptorSetSchema,
  type FileDescriptorProto,
  type FileDescriptorSet,
} from "@bufbuild/protobuf/wkt";
import {
  Server,
  ServerCredentials,
  status as grpcStatus,
  type sendUnaryData,
  type ServerDuplexStream,
  type ServerUnaryCall,
  type ServerWritableStream,
  type ServiceDefinition,
  type UntypedHandleCall,
} from "@grpc/grpc-js";

const fixtures = join(import.meta.dirname, "../fixtures/grpc");
const setOf = (name: string): FileDescriptorSet =>
  fromBinary(FileDescriptorSetSchema, readFileSync(join(fixtures, name)));

/** What a service is configured with. */
export const loyaltyDescriptors: string = readFileSync(join(fixtures, "loyalty.binpb")).toString("base64");

const loyaltySet = setOf("loyalty.binpb");
/** What servers on Node tell of loyalty.proto by `@grpc/reflection`: made by `@grpc/proto-loader` 0.8.1. */
const loyaltyOfProtobufjs: Uint8Array = readFileSync(join(fixtures, "loyalty-of-protobufjs.binpb"));

/** The same set with one more file, so that each name makes another set. */
export function descriptorSetNamed(name: string): Uint8Array<ArrayBuffer> {
  const more = create(FileDescriptorProtoSchema, { name: `${name}.proto`, syntax: "proto3" });
  const set = create(FileDescriptorSetSchema, { file: [...loyaltySet.file, more] });
  return new Uint8Array(toBinary(FileDescriptorSetSchema, set));
}

const loyalty = createFileRegistry(loyaltySet);
const reflection = createFileRegistry(setOf("reflection.binpb"));

/** A set of one file alone, as protoc writes it without its imports. */
export function descriptorSetOf(name: string): Uint8Array<ArrayBuffer> {
  const file = loyaltySet.file.filter((each) => each.name === name);
  return new Uint8Array(toBinary(FileDescriptorSetSchema, create(FileDescriptorSetSchema, { file })));
}

export interface GrpcAsked {
  /** `/package.Service/Method`. */
  readonly path: string;
  readonly request: JsonValue;
  readonly metadata: Readonly<Record<string, unknown>>;
}

/** How the next calls end: with a message, a status of gRPC, or not at all. */
export type GrpcAnswer =
  | { readonly message: JsonValue }
  | { readonly messages: readonly JsonValue[] }
  | { readonly status: number; readonly details: string }
  | "silent"
  | "cut";

export interface GrpcPeer {
  readonly port: number;
  readonly asked: GrpcAsked[];
  answer: (asked: GrpcAsked) => GrpcAnswer;
  close(): Promise<void>;
}

export interface GrpcPeerOptions {
  /** PEM; `ca` asks clients for certificates of this authority. */
  readonly tls?: { readonly cert: string; readonly key: string; readonly ca?: string };
  /** Absent: none. */
  readonly reflection?: "v1" | "v1alpha";
  /** Who has made what reflection tells. */
  readonly describedBy?: "protoc" | "protobufjs";
  /** Absent: no health service. */
  readonly health?: "serving" | "not_serving";
}

export async function startGrpcPeer(options: GrpcPeerOptions = {}): Promise<GrpcPeer> {
  const peer = { asked: [] as GrpcAsked[], answer: (): GrpcAnswer => ({ message: {} }) };
  const server = new Server({ "grpc.max_send_message_length": -1 });
  const told: GrpcPeer["answer"] = (asked) => current.answer(asked);
  for (const name of ["Customers", "Echo"]) addService(server, `loyalty.v1.${name}`, { asked: peer.asked, told });
  if (options.reflection !== undefined) addReflection(server, options.reflection, options.describedBy);
  if (options.health !== undefined) addHealth(server, options.health === "serving" ? 1 : 2);
  const port = await listen(server, options.tls);
  const current: GrpcPeer = {
    port,
    asked: peer.asked,
    answer: peer.answer,
    close: () => {
      server.forceShutdown();
      return Promise.resolve();
    },
  };
  return current;
}

function listen(server: Server, tls: GrpcPeerOptions["tls"]): Promise<number> {
  const credentials =
    tls === undefined
      ? ServerCredentials.createInsecure()
      : ServerCredentials.createSsl(
          tls.ca === undefined ? null : Buffer.from(tls.ca),
          [{ cert_chain: Buffer.from(tls.cert), private_key: Buffer.from(tls.key) }],
          tls.ca !== undefined,
        );
  return new Promise((resolve, reject) => {
    server.bindAsync("127.0.0.1:0", credentials, (error, port) => (error === null ? resolve(port) : reject(error)));
  });
}

interface Told {
  readonly asked: GrpcAsked[];
  readonly told: GrpcPeer["answer"];
}

const bytes = (value: Buffer): Buffer => value;

function methodOf(path: string, isStream: boolean): ServiceDefinition[string] {
  return {
    path,
    requestStream: false,
    responseStream: isStream,
    requestSerialize: bytes,
    requestDeserialize: bytes,
    responseSerialize: bytes,
    responseDeserialize: bytes,
  };
}

type Unary = ServerUnaryCall<Buffer, Buffer>;
type Streaming = ServerWritableStream<Buffer, Buffer>;

function addService(server: Server, name: string, { asked, told }: Told): void {
  const service = loyalty.getService(name);
  if (service === undefined) throw new Error(`no service ${name}`);
  const methods = service.methods.filter(
    ({ methodKind }) => methodKind === "unary" || methodKind === "server_streaming",
  );
  const definition: Record<string, ServiceDefinition[string]> = {};
  const handlers: Record<string, UntypedHandleCall> = {};
  for (const method of methods) {
    const path = `/${name}/${method.name}`;
    const isStream = method.methodKind === "server_streaming";
    const ask = (call: Unary | Streaming): GrpcAnswer => {
      const request = toJson(method.input, fromBinary(method.input, call.request), { registry: loyalty });
      const received = { path, request, metadata: call.metadata.getMap() };
      asked.push(received);
      return told(received);
    };
    const write = (message: JsonValue): Buffer =>
      Buffer.from(toBinary(method.output, fromJson(method.output, message, { registry: loyalty })));
    definition[method.name] = methodOf(path, isStream);
    handlers[method.name] = isStream
      ? (call: Streaming) => stream(call, ask(call), write)
      : (call: Unary, callback: sendUnaryData<Buffer>) => reply(call, ask(call), { write, callback });
  }
  server.addService(definition, handlers);
}

function reply(
  call: Unary,
  answer: GrpcAnswer,
  { write, callback }: { readonly write: (message: JsonValue) => Buffer; readonly callback: sendUnaryData<Buffer> },
): void {
  if (answer === "silent") return;
  if (answer === "cut") cut(call);
  else if ("status" in answer) callback({ code: answer.status, details: answer.details });
  else callback(null, write("message" in answer ? answer.message : {}));
}

function stream(call: Streaming, answer: GrpcAnswer, write: (message: JsonValue) => Buffer): void {
  if (answer === "silent") return;
  if (answer === "cut") cut(call);
  else if ("status" in answer) call.emit("error", { code: answer.status, details: answer.details });
  else {
    for (const message of "messages" in answer ? answer.messages : [answer.message]) call.write(write(message));
    call.end();
  }
}

/** Ends the socket under the call. */
function cut(call: Unary | Streaming): void {
  const hidden: unknown = Reflect.get(call, "call");
  const http2: unknown = typeof hidden === "object" && hidden !== null ? Reflect.get(hidden, "stream") : undefined;
  const session: unknown = typeof http2 === "object" && http2 !== null ? Reflect.get(http2, "session") : undefined;
  if (typeof session !== "object" || session === null) throw new Error("grpc-js hides its session elsewhere");
  const destroy: unknown = Reflect.get(session, "destroy");
  if (typeof destroy === "function") Reflect.apply(destroy, session, []);
}

const symbolsOf = (registry: FileRegistry, symbol: string): string | undefined =>
  (registry.getService(symbol) ?? registry.getMessage(symbol) ?? registry.getEnum(symbol))?.file.proto.name;

function addReflection(server: Server, version: "v1" | "v1alpha", describedBy: GrpcPeerOptions["describedBy"]): void {
  const request = reflection.getMessage("grpc.reflection.v1.ServerReflectionRequest");
  const response = reflection.getMessage("grpc.reflection.v1.ServerReflectionResponse");
  if (request === undefined || response === undefined) throw new Error("no reflection");
  const toBase64 = (file: FileDescriptorProto): string =>
    Buffer.from(toBinary(FileDescriptorProtoSchema, create(FileDescriptorProtoSchema, file))).toString("base64");
  const fileNamed = (name: string | undefined): string[] => {
    const files = loyaltySet.file.filter((file) => file.name === name);
    if (describedBy !== "protobufjs" || files.length === 0) return files.map(toBase64);
    // All that the file needs at once, since the files themselves do not say it.
    return fromBinary(FileDescriptorSetSchema, loyaltyOfProtobufjs).file.map(toBase64);
  };
  const answer = (asked: JsonValue): JsonValue => {
    const { listServices, fileByFilename, fileContainingSymbol } = asked as Record<string, string | undefined>;
    if (listServices !== undefined) {
      // One of them it was given no descriptors of.
      const names = ["loyalty.v1.Echo", "grpc.health.v1.Health", "loyalty.v1.Ghost", "loyalty.v1.Customers"];
      return { listServicesResponse: { service: names.map((name) => ({ name })) } };
    }
    const files = fileNamed(fileByFilename ?? symbolsOf(loyalty, fileContainingSymbol ?? ""));
    if (files.length > 0) return { fileDescriptorResponse: { fileDescriptorProto: files } };
    return { errorResponse: { errorCode: grpcStatus.NOT_FOUND, errorMessage: "Symbol not found" } };
  };
  server.addService(
    {
      ServerReflectionInfo: {
        ...methodOf(`/grpc.reflection.${version}.ServerReflection/ServerReflectionInfo`, true),
        requestStream: true,
      },
    },
    {
      ServerReflectionInfo: (call: ServerDuplexStream<Buffer, Buffer>) => {
        call.on("data", (message: Buffer) => {
          const asked = toJson(request, fromBinary(request, message));
          call.write(Buffer.from(toBinary(response, fromJson(response, answer(asked)))));
        });
        call.on("end", () => call.end());
      },
    },
  );
}

function addHealth(server: Server, serving: number): void {
  server.addService(
    { Check: methodOf("/grpc.health.v1.Health/Check", false) },
    { Check: (_call: Unary, callback: sendUnaryData<Buffer>) => callback(null, Buffer.from([0x08, serving])) },
  );
}
