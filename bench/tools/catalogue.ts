/** A tenant with 1,000 tools: what listing them costs, and what they add to a chat. */
import type { BenchTenant, GatewayProcess } from "../support/gateway.ts";
import { HttpConnection, requestBytes } from "../support/http-connection.ts";
import { ask, medianMs } from "../support/load.ts";
import { round, type Finding } from "../support/report.ts";
import { chatBody } from "../support/requests.ts";
import { addModels } from "../support/targets.ts";
import { addService } from "./tool-case.ts";

const services = 10;
const toolsOfService = 100;
const tools = services * toolsOfService;

export async function measureCatalogue(gateway: GatewayProcess, model: string): Promise<readonly Finding[]> {
  const [small, large] = [await gateway.newTenant(), await gateway.newTenant()];
  await addModels(small, model);
  await addModels(large, model);
  for (let service = 0; service < services; service += 1) await addTools(large, service);
  const chat = { [tools]: await chatMs(large), 0: await chatMs(small) };
  return [
    ...(await listing(large)),
    {
      what: `a chat with ${tools} tools, p50`,
      figures: `${round(chat[tools] ?? 0)} ms, without tools ${round(chat[0])}`,
      value: (chat[tools] ?? 0) - chat[0],
      floor: { at: "most", unit: "ms more" },
    },
  ];
}

async function addTools(tenant: BenchTenant, service: number): Promise<void> {
  const operation = (index: number): object => ({
    description: `Reads record ${index} of a department, with all that belongs to it in the year that is asked for.`,
    endpoint: `/records/${index}/{id}`,
    parameters: {
      type: "object",
      properties: {
        id: { type: "string", description: "Number of the record." },
        year: { type: "integer", minimum: 1_900, description: "Absent: this year." },
        parts: { type: "array", items: { enum: ["head", "lines", "notes"] }, description: "Which parts to read." },
      },
      required: ["id"],
    },
  });
  await addService(tenant, "api", `department-${service}`, {
    base_url: "http://127.0.0.1:9",
    tools: Object.fromEntries(
      Array.from({ length: toolsOfService }, (_, index) => [`record_${index}`, operation(index)]),
    ),
  });
}

async function listing(tenant: BenchTenant): Promise<readonly Finding[]> {
  const findings: Finding[] = [];
  for (const format of ["list", "openai", "mcp"]) {
    const url = `${tenant.url}/v1/tools?format=${format}`;
    const since = performance.now();
    const bytes = (await (await fetch(url, { headers: tenant.headers })).arrayBuffer()).byteLength;
    const firstMs = performance.now() - since;
    const connection = await HttpConnection.open(url);
    const request = getBytes(url, tenant.headers);
    const value = await medianMs(2, () => ask(connection, request));
    connection.close();
    findings.push({
      what: `listing ${tools} tools, format=${format}, p50`,
      figures: `${round(bytes / 1_024)} KB, the first time ${round(firstMs)} ms`,
      value,
      floor: { at: "most", unit: "ms" },
    });
  }
  return findings;
}

function getBytes(url: string, headers: BenchTenant["headers"]): Buffer {
  const { host, pathname, search } = new URL(url);
  const fields = Object.entries({ host, ...headers }).map(([name, value]) => `${name}: ${value}\r\n`);
  return Buffer.from(`GET ${pathname}${search} HTTP/1.1\r\n${fields.join("")}\r\n`);
}

async function chatMs({ url, headers }: BenchTenant): Promise<number> {
  const target = { url: `${url}/v1/chat/completions`, headers };
  const connection = await HttpConnection.open(target.url);
  const request = requestBytes(target, chatBody("plain"));
  await medianMs(1, () => ask(connection, request));
  const value = await medianMs(2, () => ask(connection, request));
  connection.close();
  return value;
}
