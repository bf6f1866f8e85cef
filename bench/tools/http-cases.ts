/** Tools over HTTP beside undici: plugins, APIs, microservices, the tool `fetch`, buckets, SMS vendors. */
import { sha256Hex, signRequest } from "@toolyard/core/object-storage/sigv4";
import { aliyun } from "@toolyard/core/sms/aliyun";
import { Pool, type Dispatcher } from "undici";
import { addService, type StartedCase, type ToolCase } from "./tool-case.ts";

const parameters = { type: "object", properties: { id: { type: "string" } }, required: ["id"] };
const operation = { description: "One customer.", endpoint: "/customers/{id}", parameters };
const id = { id: "C001" };

/** @param request anew for each call: signatures are */
function asking(
  { uri, args = id }: { readonly uri: string; readonly args?: object },
  url: string,
  request: () => Omit<Dispatcher.RequestOptions, "method"> & { readonly method?: Dispatcher.HttpMethod },
): StartedCase {
  const pool = new Pool(url, { connections: 1, pipelining: 1 });
  return {
    uri,
    arguments: args,
    async bare() {
      const { statusCode, body } = await pool.request({ method: "GET", ...request() });
      const text = await body.text();
      if (statusCode !== 200) throw new Error(`${url} answered ${statusCode}: ${text}`);
      return text;
    },
    close: () => pool.destroy(),
  };
}

export const pluginCase: ToolCase = {
  bareClient: "undici",
  async start({ url }, tenant) {
    await tenant.send("POST", "/v1/plugins", {
      schema_version: "v1",
      name: "customer_get",
      description: "One customer.",
      parameters,
      execution: { method: "GET", base_url: `${url}/customers/{id}`, param_placement: "query" },
      auth_config: { type: "bearer", mapping: [{ source: "CRM_TOKEN", target: "Authorization", location: "header" }] },
    });
    await tenant.send("PUT", "/v1/credentials/CRM_TOKEN", { value: "token-of-the-crm" });
    return asking({ uri: "plugin://customer_get" }, url, () => ({
      path: "/customers/C001",
      headers: { authorization: "Bearer token-of-the-crm" },
    }));
  },
};

export const apiCase: ToolCase = {
  bareClient: "undici",
  async start({ url }, tenant) {
    await addService(tenant, "api", "crm", {
      base_url: url,
      auth_type: "bearer",
      auth_config: { token: "token-of-the-crm" },
      tools: { customer_get: operation },
    });
    return asking({ uri: "api://crm/customer_get" }, url, () => ({
      path: "/customers/C001",
      headers: { authorization: "Bearer token-of-the-crm" },
    }));
  },
};

export const svcHttpCase: ToolCase = {
  bareClient: "undici",
  async start({ url }, tenant) {
    await addService(tenant, "svc", "crm", {
      protocol: "http",
      endpoints: [{ host: "127.0.0.1", port: Number(new URL(url).port) }],
      auth_type: "apikey",
      auth_config: { header: "x-crm-key", value: "key-of-the-crm" },
      tools: { customer_get: operation },
    });
    return asking({ uri: "svc://crm/customer_get" }, url, () => ({
      path: "/customers/C001",
      headers: { "x-crm-key": "key-of-the-crm" },
    }));
  },
};

export const nativeCase: ToolCase = {
  bareClient: "undici",
  start({ url }) {
    const target = { uri: "native://fetch", args: { url: `${url}/customers/C001` } };
    return Promise.resolve(asking(target, url, () => ({ path: "/customers/C001" })));
  },
};

const keys = { accessKeyId: "AKIDEXAMPLE", secretAccessKey: "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY" };

export const ossCase: ToolCase = {
  bareClient: "undici, signed",
  async start({ url }, tenant) {
    await addService(tenant, "oss", "files", {
      vendor: "minio",
      bucket: "bucket",
      endpoint: url,
      access_key_id: keys.accessKeyId,
      secret_access_key: keys.secretAccessKey,
    });
    const { host } = new URL(url);
    const path = "/bucket/files/doc.txt";
    const nothing = sha256Hex("");
    return asking({ uri: "oss://files/load", args: { key: "files/doc.txt" } }, url, () => {
      const request = { method: "GET", host, path, query: [], headers: [] };
      const signed = signRequest(request, nothing, { keys, region: "us-east-1", now: Date.now() });
      return { path, headers: Object.fromEntries(signed) };
    });
  },
};

export const smsCase: ToolCase = {
  bareClient: "undici, signed",
  async start({ url }, tenant) {
    const account = { access_key_id: "LTAIEXAMPLE", access_key_secret: "secret-of-the-vendor", endpoint: url };
    await addService(tenant, "sms", "codes", {
      vendor: "aliyun",
      account,
      sign_name: "Shop",
      profiles: { code: { description: "Sends a code." } },
    });
    const args = { to: "13800138000", template: "SMS_001", params: { code: "012345" } };
    const credential = { credential: "SECRET" };
    let count = 0;
    return asking({ uri: "sms://codes/code", args }, url, () => {
      const { method, headers, ...request } = aliyun.send(
        { ...account, access_key_secret: credential },
        {
          numbers: ["+8613800138000"],
          content: { template: args.template, params: { named: args.params, listed: [] } },
          signName: "Shop",
          callId: "call_1",
          receiptUrl: undefined,
        },
        { now: new Date(), nonce: String((count += 1)), reveal: () => account.access_key_secret },
      );
      const asked = new URL(request.url);
      return {
        method,
        path: asked.pathname + asked.search,
        headers: Object.fromEntries(headers),
        body: request.body ?? null,
      };
    });
  },
};
