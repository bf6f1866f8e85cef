/**
 * Object stores of five vendors on loopback, each of which refuses what that vendor refuses and leaves
 * unheard what it does not know. Requests are checked as they arrive: signature, host, headers, body.
 */
import type { Vendor } from "@toolyard/core/object-storage/vendors";
import { failure, startS3Server, type S3Server, type Store } from "./aws/s3-server.ts";
import type { AwsReply, AwsRequest } from "./aws/aws-server.ts";

interface VendorRules {
  /** The code with which buckets in paths are refused. */
  readonly pathRefusal?: string;
  /** Only in paths; a bucket before the host is nobody's. */
  readonly pathOnly?: boolean;
  /** `list-type=2` is: known, answered as version 1, or refused. */
  readonly secondListing: "known" | "as-first" | "refused";
  /** How bodies in signed chunks are refused. */
  readonly chunkRefusal: string | undefined;
  /** Checksum headers mean something. */
  readonly knowsChecksums: boolean;
  /** Header that forbids to overwrite. */
  readonly ifAbsent: string | undefined;
}

const vendorRules: Readonly<Record<Vendor, VendorRules>> = {
  aws_s3: { secondListing: "known", chunkRefusal: undefined, knowsChecksums: true, ifAbsent: "if-none-match" },
  minio: {
    pathOnly: true,
    secondListing: "known",
    chunkRefusal: undefined,
    knowsChecksums: true,
    ifAbsent: "if-none-match",
  },
  aliyun_oss: {
    pathRefusal: "SecondLevelDomainForbidden",
    secondListing: "known",
    chunkRefusal: "InvalidArgument",
    knowsChecksums: false,
    ifAbsent: "x-oss-forbid-overwrite",
  },
  tencent_cos: {
    pathRefusal: "PathStyleDomainForbidden",
    secondListing: "refused",
    chunkRefusal: "InvalidArgument",
    knowsChecksums: false,
    ifAbsent: "x-cos-forbid-overwrite",
  },
  huawei_obs: {
    secondListing: "as-first",
    chunkRefusal: "XAmzContentSHA256Mismatch",
    knowsChecksums: false,
    ifAbsent: undefined,
  },
};

export interface VendorStore extends S3Server {
  /** Host names that are this store's, without the bucket. */
  readonly domain: string;
  readonly port: number;
}

/** @param domain name of the store's host, as a resolver of the test leads to loopback */
export async function startVendorStore(vendor: Vendor, bucket: string, domain = "store.example"): Promise<VendorStore> {
  const rules = vendorRules[vendor];
  const server = await startS3Server(bucket, {
    vary: (request, store) => refuse(request, rules) ?? place(request, { rules, store, domain }),
  });
  return Object.assign(server, { domain, port: Number(new URL(server.url).port) });
}

function refuse({ method, query, headers }: AwsRequest, rules: VendorRules): AwsReply | undefined {
  const hash = headers["x-amz-content-sha256"] ?? "";
  const isChunked =
    headers["content-encoding"]?.includes("aws-chunked") === true ||
    hash.startsWith("STREAMING-") ||
    headers["x-amz-trailer"] !== undefined;
  if (isChunked && rules.chunkRefusal !== undefined)
    return failure(400, rules.chunkRefusal, "aws-chunked encoding is not supported with the specified hash.");
  if ((method === "PUT" || method === "POST") && headers["content-length"] === undefined)
    return failure(411, "MissingContentLength", "You must provide the Content-Length HTTP header.");
  if (headers["x-amz-acl"] !== undefined)
    return failure(400, "AccessControlListNotSupported", "The bucket does not allow ACLs.");
  if (query.get("list-type") === "2" && rules.secondListing === "refused")
    return failure(400, "InvalidArgument", "list-type");
  return undefined;
}

interface Placing {
  readonly rules: VendorRules;
  readonly store: Store;
  readonly domain: string;
}

/** The request as a store with buckets in paths and AWS's headers understands it, or the vendor's no. */
function place(request: AwsRequest, { rules, store, domain }: Placing): AwsReply | AwsRequest {
  const host = (request.headers["host"] ?? "").replace(/:\d+$/, "");
  const isVirtual = host.endsWith(`.${domain}`);
  const isService = host === domain;
  if (isVirtual && rules.pathOnly === true) return failure(404, "NoSuchBucket", "The bucket does not exist.");
  if (isService && rules.pathRefusal !== undefined)
    return failure(403, rules.pathRefusal, "The bucket you are attempting to access must be addressed by its domain.");
  // Every other host is a domain that the bucket's owner has pointed at it, or the address of the server.
  const bucket = isVirtual ? host.slice(0, -domain.length - 1) : store.bucket;
  const isPath = !isVirtual && (isService || request.path.startsWith(`/${store.bucket}/`));
  const path = isPath ? request.path : `/${bucket}${request.path}`;
  return translate({ ...request, path }, { rules, store });
}

function translate(request: AwsRequest, { rules, store }: Omit<Placing, "domain">): AwsReply | AwsRequest {
  const headers: Record<string, string | undefined> = { ...request.headers };
  const isForbidden = rules.ifAbsent !== undefined && headers[rules.ifAbsent] !== undefined;
  if (rules.ifAbsent !== "if-none-match") {
    // A condition that the vendor does not know is no condition.
    delete headers["if-none-match"];
    const key = decodeURIComponent(request.path.slice(store.bucket.length + 2));
    if (isForbidden && store.objects.has(key))
      return failure(409, "FileAlreadyExists", "The object you specified already exists and can not be overwritten.");
  }
  if (!rules.knowsChecksums) {
    for (const name of Object.keys(headers)) if (name.startsWith("x-amz-checksum-")) delete headers[name];
  }
  const query = new URLSearchParams(request.query);
  if (rules.secondListing === "as-first" && query.get("list-type") === "2") query.delete("list-type");
  return { ...request, headers, query };
}
