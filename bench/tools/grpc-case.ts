/** A microservice over gRPC beside grpc-js, which is given and gives bytes. */
import { Client, credentials, Metadata } from "@grpc/grpc-js";
import { descriptors, listRequest } from "./grpc-messages.ts";
import { addService, type ToolCase } from "./tool-case.ts";

const bytes = (value: Buffer): Buffer => value;

export const grpcCase: ToolCase = {
  bareClient: "grpc-js",
  async start({ grpcPort }, tenant) {
    await addService(tenant, "svc", "loyalty", {
      protocol: "grpc",
      endpoints: [{ host: "127.0.0.1", port: grpcPort }],
      grpc: { descriptors },
      auth_type: "apikey",
      auth_config: { header: "x-loyalty-key", value: "key-of-the-service" },
      tools: { customers_list: { method: "loyalty.v1.Customers/List" } },
    });
    const client = new Client(`127.0.0.1:${grpcPort}`, credentials.createInsecure());
    const metadata = new Metadata();
    metadata.set("x-loyalty-key", "key-of-the-service");
    const message = Buffer.from(listRequest());
    return {
      uri: "svc://loyalty/customers_list",
      arguments: { page: 2 },
      bare: () =>
        new Promise((resolve, reject) => {
          client.makeUnaryRequest("/loyalty.v1.Customers/List", bytes, bytes, message, metadata, (error, reply) => {
            if (error === null) resolve(reply);
            else reject(error);
          });
        }),
      close: () => Promise.resolve(client.close()),
    };
  },
};
