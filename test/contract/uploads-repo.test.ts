import { twoInstancesOfFile, twoInstancesOfServer } from "../support/two-instances.ts";
import { describeUploadRepo } from "./uploads-repo.ts";

describeUploadRepo("file", twoInstancesOfFile);
describeUploadRepo("server", twoInstancesOfServer);
