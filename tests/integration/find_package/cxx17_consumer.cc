#include <cstdio>

#include <kolo/kolo_c.h>

static_assert(__cplusplus < 202002L, "kolo::c has changed the standard that this program asks for");

int main() { return std::puts(kolo_version()) < 0; }
